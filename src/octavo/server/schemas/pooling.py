"""The bodies of /v1/embeddings, /pooling, /classify, /score and /rerank, in vLLM's shapes.

Unknown fields are ignored, as OpenAI and vLLM do; one of theirs that we know and do not serve is
refused by name.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec

from octavo.errors import InvalidRequestError
from octavo.server.schemas.chat import check_chat_prompt, check_no_chat
from octavo.server.schemas.envelope import Usage

MAX_INPUTS = 2048
Inputs = str | list[str | int | list[int]]
_SIDES = ("queries", "documents", "items", "text_1", "text_2", "data_1", "data_2")


class PoolingFields(msgspec.Struct, kw_only=True):
    """Fields of all these bodies."""

    model: str | None = None
    truncate_prompt_tokens: int | None = None  # keep the first; -1: as many as the model takes
    truncation_side: str | None = None  # right; left is refused
    use_activation: bool | None = None
    priority: int | None = None
    timeout: float | None = None  # seconds that the answer may take; ours
    request_id: str | None = None
    user: Any = None
    # Known, and refused.
    normalize: Any = None
    mm_processor_kwargs: Any = None


class InputFields(PoolingFields, kw_only=True):
    """Texts, token ids, or a chat that the model's template turns into one text."""

    input: Inputs | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    cache_salt: str | None = None
    tools: list[dict[str, Any]] | None = None
    documents: list[dict[str, Any]] | None = None
    add_generation_prompt: bool | None = False
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class EmbeddingRequest(InputFields, kw_only=True):
    """/v1/embeddings."""

    encoding_format: str | None = None  # float, base64, bytes or bytes_only
    dimensions: int | None = None
    embed_dtype: str | None = None  # float32, float16 or bfloat16
    endianness: str | None = None  # native, little or big


class PoolingRequest(EmbeddingRequest, kw_only=True):
    """/pooling."""

    task: str | None = None


class ClassifyRequest(InputFields, kw_only=True):
    """/classify."""


class ScoreRequest(PoolingFields, kw_only=True):
    """/score: texts of two sides, under any of vLLM's names for them."""

    queries: Any = None
    documents: Any = None
    items: Any = None
    text_1: Any = None
    text_2: Any = None
    data_1: Any = None
    data_2: Any = None
    max_tokens_per_query: int | None = None
    max_tokens_per_doc: int | None = None
    instruction: str | None = None  # refused


class RerankRequest(PoolingFields, kw_only=True):
    """/rerank, as Jina and Cohere have it."""

    query: Any = None
    documents: Any = None
    top_n: int | None = None
    return_documents: bool | None = None
    max_tokens_per_query: int | None = None
    max_tokens_per_doc: int | None = None
    instruction: str | None = None  # refused


class Embedding(msgspec.Struct, kw_only=True):
    """One vector: numbers, or base64 of them."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class Pooled(msgspec.Struct, kw_only=True):
    """One vector, or one for each token."""

    index: int
    data: str | list[float | str | list[float]]  # base64 has a text for each vector
    object: str = "pooling"


class Classified(msgspec.Struct, kw_only=True):
    """The likeliest label and the numbers of all."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class Score(msgspec.Struct, kw_only=True):
    """How well one pair belongs together."""

    index: int
    score: float
    object: str = "score"


class RankedDocument(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A document of /rerank; `index` is its place in the request."""

    index: int
    relevance_score: float
    document: dict[str, str] | None = None


class PoolingAnswer(msgspec.Struct, kw_only=True):
    """What the answers of all but /rerank have."""

    id: str
    created: int
    model: str
    usage: Usage
    object: str = "list"


class EmbeddingAnswer(PoolingAnswer, kw_only=True):
    """The answer of /v1/embeddings."""

    data: list[Embedding]


class VectorAnswer(PoolingAnswer, kw_only=True):
    """The answer of /pooling."""

    data: list[Pooled]


class ClassifyAnswer(PoolingAnswer, kw_only=True):
    """The answer of /classify."""

    data: list[Classified]


class ScoreAnswer(PoolingAnswer, kw_only=True):
    """The answer of /score."""

    data: list[Score]


class RerankAnswer(msgspec.Struct, kw_only=True):
    """The answer of /rerank, the best first."""

    id: str
    model: str
    usage: Usage
    results: list[RankedDocument]


def check_fields(body: PoolingFields) -> None:
    """Refuse what vLLM has removed or we do not have, by name."""
    if body.normalize is not None:
        message = "normalize is not served, as in vLLM; use_activation is its name now"
        raise InvalidRequestError(message, param="normalize")
    if body.truncation_side not in (None, "right"):
        message = "truncation_side must be right here: the beginning of a text is kept"
        raise InvalidRequestError(message, param="truncation_side")
    if body.mm_processor_kwargs is not None:
        message = "mm_processor_kwargs is for models that see or hear; leave it out"
        raise InvalidRequestError(message, param="mm_processor_kwargs")
    if isinstance(body, ScoreRequest | RerankRequest) and body.instruction is not None:
        message = "instruction is not supported; write it into the query as the model wants it"
        raise InvalidRequestError(message, param="instruction")


def inputs_of(body: InputFields) -> list[str | list[int]]:
    """The inputs of a body without messages. Raises InvalidRequestError."""
    given = body.input
    if given is None:
        raise InvalidRequestError("input is missing", param="input")
    if isinstance(given, str):
        return [given]
    if not given:
        raise InvalidRequestError("input must hold at least one text", param="input")
    kinds = set(map(type, given))
    if len(kinds) > 1:
        message = "input must be texts, token ids or lists of token ids, not a mixture of them"
        raise InvalidRequestError(message, param="input")
    if kinds == {int}:
        return [cast("list[int]", given)]
    check_count(len(given), "input")
    return [item for item in given if not isinstance(item, int)]


def check_count(count: int, name: str) -> None:
    """Raises InvalidRequestError for more texts than one request may bring."""
    if count > MAX_INPUTS:
        message = f"{name} may hold at most {MAX_INPUTS} texts, got {count}"
        raise InvalidRequestError(message, param=name)


def has_messages(body: InputFields) -> bool:
    """Whether the body is a chat. Raises InvalidRequestError for one that makes no prompt."""
    if body.input is not None:
        check_no_chat(body, "input")
    if body.messages is None:
        return False
    check_chat_prompt(body)
    return True


def sides_of(body: ScoreRequest) -> tuple[list[str], list[str], tuple[str, str]]:
    """The texts of both sides of /score, and what the request calls them."""
    given = [name for name in _SIDES if getattr(body, name) is not None]
    if len(given) > 2:
        message = f"{', '.join(given)} are more than two sides; leave out all but two"
        raise InvalidRequestError(message, param=given[-1])
    for first, second in (
        ("queries", "documents"),
        ("queries", "items"),
        ("text_1", "text_2"),
        ("data_1", "data_2"),
    ):
        if getattr(body, first) is not None and getattr(body, second) is not None:
            return (
                texts_of(getattr(body, first), first),
                texts_of(getattr(body, second), second),
                (first, second),
            )
    message = "two texts are missing: queries and documents, or text_1 and text_2"
    raise InvalidRequestError(message, param="queries")


def texts_of(given: Any, name: str) -> list[str]:
    """A text, or a list of texts; each may be an object with a `text`."""
    items = given if isinstance(given, list) else [given]
    found = [item.get("text") if isinstance(item, dict) else item for item in items]
    texts = [text for text in found if isinstance(text, str)]
    if len(texts) < len(found):
        message = f"{name} must be a text or a list of texts; images are not supported"
        raise InvalidRequestError(message, param=name)
    check_count(len(texts), name)
    return texts
