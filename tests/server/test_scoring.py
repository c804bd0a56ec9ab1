"""/score and /rerank: by a model that reads both texts, and by two embeddings."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from octavo.config.server import ServerConfig
from tests.server.conftest import MakeFolder
from tests.support.tiny_encoders import class_scores, make_encoder, pair_library
from tests.support.tiny_pooling import pooling_server

QUERY = "the capital of France"
DOCUMENTS = ["Paris", "The quick brown fox jumps", "Numbers 0 1 2 3", "Berlin is a capital"]


def oracle(name: str, first: str, second: str) -> float:
    """transformers on the pair, its segments told where the model has them."""
    encoding = pair_library().encode(first, second)
    begin = encoding.type_ids.index(1) if name.startswith("bert") else -1
    return float(class_scores(make_encoder(name), encoding.ids, begin)[0].sigmoid())


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("name", ["bert_reranker", "xlm_roberta_reranker"])
async def test_a_cross_encoders_score_is_that_of_transformers(
    encoder_folder: MakeFolder, name: str, backend: str
) -> None:
    """One query with each document, special tokens and segments of a pair included."""
    async with pooling_server(encoder_folder(name), backend=backend) as client:
        reply = await client.post("/score", {"queries": QUERY, "documents": DOCUMENTS})

    answer = reply.json
    assert answer["id"].startswith("score-")
    assert [("score", i) for i in range(4)] == [(e["object"], e["index"]) for e in answer["data"]]
    expected = [oracle(name, QUERY, document) for document in DOCUMENTS]
    torch.testing.assert_close(
        torch.tensor([entry["score"] for entry in answer["data"]]),
        torch.tensor(expected),
        rtol=1e-3,
        atol=1e-4,
    )
    assert answer["usage"]["prompt_tokens"] == sum(
        len(pair_library().encode(QUERY, document).ids) for document in DOCUMENTS
    )


@pytest.mark.parametrize(
    ("names", "path"),
    [
        (("queries", "items"), "/score"),
        (("text_1", "text_2"), "/v1/score"),
        (("data_1", "data_2"), "/score"),
    ],
)
async def test_every_name_of_the_two_sides_means_the_same(
    encoder_folder: MakeFolder, names: tuple[str, str], path: str
) -> None:
    """Also each with its counterpart, and texts as objects."""
    first, second = names
    async with pooling_server(encoder_folder("bert_reranker")) as client:
        one = await client.post(path, {first: [QUERY, "fox"], second: ["Paris", {"text": "dog"}]})
        uneven = await client.post(path, {first: ["a", "b"], second: ["a", "b", "c"]})
        empty = await client.post(path, {first: ["a"], second: []})
        missing = await client.post(path, {first: "a"})

    scores = [entry["score"] for entry in one.json["data"]]
    expected = [oracle("bert_reranker", QUERY, "Paris"), oracle("bert_reranker", "fox", "dog")]
    assert scores == pytest.approx(expected, abs=1e-4)
    assert (uneven.status, uneven.error["param"]) == (400, first)
    assert empty.error["param"] == second
    assert missing.status == 400


async def test_embeddings_are_scored_by_their_angle(encoder_folder: MakeFolder) -> None:
    """Each text is embedded once; a text is nearest to itself."""
    async with pooling_server(encoder_folder("bert")) as client:
        reply = await client.post("/score", {"text_1": "Paris", "text_2": ["Paris", "fox"]})
        vectors = await client.post("/v1/embeddings", {"input": ["Paris", "fox"]})

    same, other = (entry["score"] for entry in reply.json["data"])
    paris, fox = (torch.tensor(entry["embedding"]) for entry in vectors.json["data"])
    assert same == pytest.approx(1.0, abs=1e-6)
    assert other == pytest.approx(float(paris @ fox), abs=1e-5)
    assert reply.json["usage"] == vectors.json["usage"]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
async def test_rerank_puts_the_best_first(encoder_folder: MakeFolder, path: str) -> None:
    """`index` is the document's place in the request; `top_n` cuts the end off."""
    async with pooling_server(encoder_folder("bert_reranker")) as client:
        reply = await client.post(path, {"query": QUERY, "documents": DOCUMENTS})
        best = await client.post(
            path, {"query": QUERY, "documents": DOCUMENTS, "top_n": 2, "return_documents": False}
        )

    results = reply.json["results"]
    scores = [oracle("bert_reranker", QUERY, document) for document in DOCUMENTS]
    order = sorted(range(4), key=lambda index: -scores[index])
    assert order == [entry["index"] for entry in results]
    assert [DOCUMENTS[index] for index in order] == [e["document"]["text"] for e in results]
    assert results[0]["relevance_score"] == pytest.approx(max(scores), abs=1e-4)
    assert best.json["results"] == [
        {"index": entry["index"], "relevance_score": entry["relevance_score"]}
        for entry in results[:2]
    ]


async def test_a_pair_that_is_too_long_is_refused_or_cut(encoder_folder: MakeFolder) -> None:
    """The document is cut first, or what each side may have is given apart."""
    long_text = "fox " * 300
    pair = {"queries": "fox", "documents": long_text}
    async with pooling_server(encoder_folder("bert_reranker")) as client:
        refused = await client.post("/score", pair)
        cut = await client.post("/score", pair | {"truncate_prompt_tokens": 10})
        apart = await client.post("/score", pair | {"max_tokens_per_doc": 6})
        same = await client.post("/score", {"queries": "fox", "documents": "fox " * 6})
        wrong = await client.post("/score", pair | {"max_tokens_per_doc": 0})

    assert refused.status == 400
    assert "maximum context length" in refused.error["message"]
    assert cut.json["usage"] == apart.json["usage"] == same.json["usage"]
    assert cut.json["data"] == apart.json["data"] == same.json["data"]
    assert wrong.error["param"] == "max_tokens_per_doc"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"documents": ["a"]}, "query"),
        ({"query": "a"}, "documents"),
        ({"query": "a", "documents": [{"image": "x"}]}, "documents"),
        ({"query": ["a", "b"], "documents": ["a"]}, "query"),
        ({"query": "a", "documents": ["a"], "top_n": -1}, "top_n"),
        ({"query": "a", "documents": ["a"], "instruction": "find"}, "instruction"),
    ],
)
async def test_a_bad_field_of_rerank_is_refused_by_name(
    encoder_folder: MakeFolder, fields: dict[str, Any], param: str
) -> None:
    """With status 400."""
    async with pooling_server(encoder_folder("bert_reranker")) as client:
        reply = await client.post("/rerank", fields)

    assert (reply.status, reply.error["param"]) == (400, param)


async def test_long_documents_come_back_as_they_went(encoder_folder: MakeFolder) -> None:
    """Of whatever characters, wherever their pieces end; `index` is still the place."""
    signs = ['"', "\\", "\n", "\u00e9", "\u4e2d", "\U0001f600", "a"]
    documents = ["".join(signs) * 90_000 + end for end in ("", "x")] + ["fox"] * 3
    body = {"query": "fox", "documents": documents, "truncate_prompt_tokens": 16}
    async with pooling_server(
        encoder_folder("bert"), config=ServerConfig(max_body_bytes=2**24)
    ) as client:
        reply = await client.post("/rerank", body)

    assert len(reply.pieces) > 2
    assert int(reply.headers["content-length"]) == len(reply.content)
    found = {entry["index"]: entry["document"]["text"] for entry in reply.json["results"]}
    assert found == dict(enumerate(documents))
