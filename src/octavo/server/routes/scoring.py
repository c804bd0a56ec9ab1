"""POST /score and /rerank: how well texts belong together."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from octavo.engine.scoring import cosine, pair_prompt, paired, reads_pairs
from octavo.errors import InvalidRequestError
from octavo.outputs import PoolingRequestOutput
from octavo.pooling_params import PoolingParams, PoolingTask
from octavo.prompts import TokensPrompt
from octavo.server.bodies import LARGE_BODY, json_response, response_of_pieces, written_text
from octavo.server.described import BODY_ERRORS, ENGINE_ERRORS, MODEL_ERRORS, described
from octavo.server.routes.reading import read_request
from octavo.server.schemas.envelope import Usage
from octavo.server.schemas.pooling import (
    RankedDocument,
    RerankAnswer,
    RerankRequest,
    Score,
    ScoreAnswer,
    ScoreRequest,
    check_fields,
    sides_of,
    texts_of,
)
from octavo.server.state import ServerState, new_id, prompt_of
from octavo.server.vectors import VectorRequest, longest_of, usage_of


@described(
    body=ScoreRequest,
    examples={"one with many": {"queries": "a question", "documents": ["an answer", "another"]}},
    answer=ScoreAnswer,
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def create_score(request: Request) -> Response:
    """A score of each pair: one text with each of many, or each with its counterpart."""
    state, body, model = await read_request(request, ScoreRequest)
    check_fields(body)
    first, second, names = sides_of(body)
    answer_id = new_id("score", body.request_id)
    pairs = paired(first, second, names)
    scores, usage = await _Scorer(state, body, answer_id).scores(request, pairs)
    return json_response(
        ScoreAnswer(
            id=answer_id,
            created=int(time.time()),
            model=model,
            data=[Score(index=index, score=score) for index, score in enumerate(scores)],
            usage=usage,
        )
    )


@described(
    body=RerankRequest,
    required=("query", "documents"),
    examples={"best": {"query": "a question", "documents": ["an answer", "another"], "top_n": 1}},
    answer=RerankAnswer,
    errors=(*BODY_ERRORS, *MODEL_ERRORS, *ENGINE_ERRORS),
)
async def rerank(request: Request) -> Response:
    """Documents by how well they answer a query, the best first."""
    state, body, model = await read_request(request, RerankRequest)
    check_fields(body)
    if body.query is None or body.documents is None:
        name = "query" if body.query is None else "documents"
        raise InvalidRequestError(f"{name} is missing", param=name)
    documents = texts_of(body.documents, "documents")
    query = texts_of(body.query, "query")
    if len(query) != 1:
        raise InvalidRequestError("query must be one text", param="query")
    top_n = len(documents) if not body.top_n else body.top_n  # 0 is all of them, as in vLLM
    if top_n < 0:
        raise InvalidRequestError(f"top_n must be at least 0, got {top_n}", param="top_n")
    answer_id = new_id("rerank", body.request_id)
    pairs = paired(query, documents, ("query", "documents"))
    scores, usage = await _Scorer(state, body, answer_id).scores(request, pairs)
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    results = [
        (RankedDocument(index=index, relevance_score=scores[index]), documents[index])
        for index in order[:top_n]
    ]
    shown = {"id": answer_id, "model": model, "usage": usage}
    return await asyncio.to_thread(
        _ranking, shown, results, shows_texts=body.return_documents is not False
    )


def _ranking(
    shown: dict[str, object], results: list[tuple[RankedDocument, str]], *, shows_texts: bool
) -> Response:
    """A `RerankAnswer`. The texts are those of the request, so they may be very long."""
    pieces = [msgspec.json.encode(shown)[:-1], b',"results":[']
    for number, (result, text) in enumerate(results):
        pieces.append((b"," if number else b"") + msgspec.json.encode(result))
        if shows_texts:
            pieces[-1] = pieces[-1][:-1]
            pieces += [b',"document":{"text":', *written_text(text), b"}}"]
    pieces.append(b"]}")
    return response_of_pieces(pieces)


def _key(text: str) -> str | int:
    """What a text is known by: to look through a very long one takes milliseconds."""
    return text if len(text) < LARGE_BODY else id(text)


@dataclass(frozen=True, slots=True)
class _Scorer:
    """Scores the pairs of one request with whatever the model is."""

    state: ServerState
    body: ScoreRequest | RerankRequest
    answer_id: str

    async def scores(
        self, request: Request, pairs: list[tuple[str, str]]
    ) -> tuple[list[float], Usage]:
        """One number for each pair, and the tokens that it took."""
        is_reader = reads_pairs(self.state.loaded)
        pairs = await asyncio.to_thread(self._shortened, pairs)
        if is_reader:
            return await self._of_pairs(request, pairs)
        return await self._of_vectors(request, pairs)

    def _shortened(self, pairs: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Each side cut to what the request allows it."""
        for name in ("max_tokens_per_query", "max_tokens_per_doc"):
            limit = getattr(self.body, name)
            if limit is not None and limit < 1:
                raise InvalidRequestError(f"{name} must be at least 1, got {limit}", param=name)

        def beginning(text: str, limit: int | None) -> str:
            return text if limit is None else self.state.tokenizer.beginning(text, limit)

        limits = (self.body.max_tokens_per_query, self.body.max_tokens_per_doc)
        return [
            (beginning(first, limits[0]), beginning(second, limits[1])) for first, second in pairs
        ]

    async def _of_pairs(
        self, request: Request, pairs: list[tuple[str, str]]
    ) -> tuple[list[float], Usage]:
        engine, keep = self.state.loaded, longest_of(self.state, self.body)

        def prompts() -> list[TokensPrompt]:
            return [pair_prompt(engine, *pair, max_tokens=keep) for pair in pairs]

        made = await self._vectors(request, await asyncio.to_thread(prompts), "classify")
        return [vector[0] for vector, _ in made], usage_of([output for _, output in made])

    async def _of_vectors(
        self, request: Request, pairs: list[tuple[str, str]]
    ) -> tuple[list[float], Usage]:
        """Each text is embedded once, however many pairs it is in."""
        keep, intake = longest_of(self.state, self.body), self.state.loaded.intake
        tokenizer = self.state.tokenizer
        texts = {_key(text): text for pair in pairs for text in pair}

        def prompt(text: str) -> TokensPrompt:
            if keep is not None:
                return prompt_of(tokenizer.encode_cut(text, keep), None, None)
            intake.check_text_length(text)
            return prompt_of(
                tokenizer.encode(text, enough=self.state.loaded.max_model_len), None, None
            )

        prompts = await asyncio.to_thread(lambda: [*map(prompt, texts.values())])
        made = dict(zip(texts, await self._vectors(request, prompts, "embed"), strict=True))
        scores = [cosine(made[_key(first)][0], made[_key(second)][0]) for first, second in pairs]
        return scores, usage_of([output for _, output in made.values()])

    async def _vectors(
        self, request: Request, prompts: list[TokensPrompt], task: PoolingTask
    ) -> list[tuple[list[float], PoolingRequestOutput]]:
        body = self.body
        wanted = VectorRequest(
            self.state,
            self.answer_id,
            prompts,
            PoolingParams(use_activation=body.use_activation, task=task),
            priority=body.priority or 0,
            timeout=body.timeout,
            names={},
        )
        outputs = await wanted.outputs(request)
        return [(cast(list[float], one.outputs.data), one) for one in outputs]
