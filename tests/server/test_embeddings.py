"""/v1/embeddings, /pooling, /classify and Ollama's embeddings, on a real tiny model."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest
import torch
from torch import Tensor

from octavo.config.server import ServerConfig
from octavo.server.vector_forms import VectorForm
from tests.server.conftest import MakeFolder
from tests.support.asgi import Reply, scripted_server
from tests.support.tiny_encoders import class_scores, hidden_states, make_encoder
from tests.support.tiny_pooling import pooling_server

EMBEDDINGS = "/v1/embeddings"
TEXT = "Paris is the capital of France"
IDS = [0, 17, 44, 61, 2]


def vectors(reply: Reply) -> Tensor:
    assert reply.status == 200, reply.json
    return torch.tensor([entry["embedding"] for entry in reply.json["data"]])


def expected_vector(token_ids: list[int]) -> Tensor:
    """Mean over the tokens, one unit long."""
    mean = hidden_states(make_encoder("bert"), token_ids).mean(dim=0)
    return mean / mean.norm()


async def test_an_embedding_has_openais_shape_and_transformers_numbers(
    encoder_folder: MakeFolder,
) -> None:
    """Id, object, usage; pooled and normalised as the folder of sentence-transformers says."""
    async with pooling_server(encoder_folder("bert")) as client:
        reply = await client.post(EMBEDDINGS, {"input": IDS, "user": "somebody"})

    answer = reply.json
    assert answer["object"] == "list"
    assert answer["id"].startswith("embd-")
    assert answer["model"] == "tiny"
    assert [("embedding", 0)] == [(one["object"], one["index"]) for one in answer["data"]]
    assert answer["usage"] == {"prompt_tokens": 5, "total_tokens": 5, "completion_tokens": 0}
    torch.testing.assert_close(vectors(reply)[0], expected_vector(IDS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", ["native", "torch"])
async def test_every_form_of_input_is_embedded_in_order(
    encoder_folder: MakeFolder, backend: str
) -> None:
    """A text, texts, ids, lists of ids: each as if it came alone, also beyond the rows at once."""
    texts = [TEXT, "The quick brown fox", "Numbers 0 1 2", TEXT, "a", "b", "c"]
    async with pooling_server(encoder_folder("bert"), backend=backend) as client:
        many = vectors(await client.post(EMBEDDINGS, {"input": texts}))
        ids = (await client.post("/tokenize", {"prompt": TEXT})).json["tokens"]
        for place, text in enumerate(texts):
            alone = vectors(await client.post(EMBEDDINGS, {"input": text}))
            torch.testing.assert_close(many[place], alone[0], rtol=0, atol=1e-6)
        of_ids = vectors(await client.post(EMBEDDINGS, {"input": ids}))
        of_lists = vectors(await client.post(EMBEDDINGS, {"input": [ids, IDS]}))

    torch.testing.assert_close(of_ids[0], many[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(of_lists[0], many[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(of_lists[1], expected_vector(IDS), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({}, "<64f"),
        ({"endianness": "big"}, ">64f"),
        ({"embed_dtype": "float16", "endianness": "little"}, "<64e"),
    ],
)
async def test_base64_holds_the_same_numbers(
    encoder_folder: MakeFolder, fields: dict[str, str], form: str
) -> None:
    """In the type and byte order that were asked for."""
    async with pooling_server(encoder_folder("bert")) as client:
        plain = vectors(await client.post(EMBEDDINGS, {"input": TEXT}))[0]
        packed = await client.post(
            EMBEDDINGS, {"input": TEXT, "encoding_format": "base64", **fields}
        )

    raw = base64.b64decode(packed.json["data"][0]["embedding"])
    numbers = torch.tensor(struct.unpack(form, raw))
    torch.testing.assert_close(numbers, plain, rtol=0, atol=1e-3 if "e" in form else 0)


@pytest.mark.parametrize("order", ["little", "big"])
async def test_bfloat16_is_rounded_to_nearest(order: str) -> None:
    """As torch does it, halves to even."""
    values = torch.cat([torch.randn(500), torch.tensor([1.00390625, 1.01171875, 3e38, -0.0])])
    form = VectorForm("base64", "bfloat16", order)

    packed = form.packed(values.tolist())

    words = struct.unpack(f"{'<>'[order == 'big']}{len(values)}H", packed)
    expected = values.bfloat16().view(torch.int16).to(torch.int32) & 0xFFFF
    assert list(words) == expected.tolist()


@pytest.mark.parametrize("path", [EMBEDDINGS, "/pooling"])
async def test_vectors_can_be_sent_as_bytes(encoder_folder: MakeFolder, path: str) -> None:
    """One after the other; the metadata tell where each lies, unless nobody wants them."""
    asked = {"input": [TEXT, "fox"], "encoding_format": "bytes"}
    async with pooling_server(encoder_folder("bert")) as client:
        plain = vectors(await client.post(EMBEDDINGS, {"input": asked["input"]}))
        told = await client.post(path, asked)
        bare = await client.post(path, asked | {"encoding_format": "bytes_only"})

    metadata = json.loads(told.headers["metadata"])
    for item, vector in zip(metadata["data"], plain, strict=True):
        numbers = struct.unpack("<64f", told.content[item["start"] : item["end"]])
        torch.testing.assert_close(torch.tensor(numbers), vector, rtol=0, atol=1e-6)
        assert item["shape"] == [64]
    assert metadata["usage"]["prompt_tokens"] > 0
    assert told.headers["content-type"] == "application/octet-stream"
    assert (bare.content, "metadata" in bare.headers) == (told.content, False)


async def test_vectors_of_tokens_have_two_dimensions_in_bytes(encoder_folder: MakeFolder) -> None:
    asked = {"input": TEXT, "task": "token_embed"}
    async with pooling_server(encoder_folder("bert")) as client:
        plain = (await client.post("/pooling", asked)).json["data"][0]["data"]
        packed = await client.post("/pooling", asked | {"encoding_format": "bytes"})

    [item] = json.loads(packed.headers["metadata"])["data"]
    assert item["shape"] == [len(plain), 64]
    numbers = struct.unpack(f"<{len(plain) * 64}f", packed.content)
    expected = torch.tensor(plain)
    torch.testing.assert_close(torch.tensor(numbers).view(-1, 64), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["encoding_format", "embed_dtype", "endianness"])
async def test_a_form_that_is_none_is_refused(encoder_folder: MakeFolder, name: str) -> None:
    async with pooling_server(encoder_folder("bert")) as client:
        reply = await client.post(EMBEDDINGS, {"input": TEXT, name: "wrong"})

    assert (reply.status, reply.error["param"]) == (400, name)
    assert "got 'wrong' (literal_error)" in reply.error["message"]


async def test_a_long_text_is_refused_or_cut_where_the_request_says_so(
    encoder_folder: MakeFolder,
) -> None:
    """Its beginning stays, with the special tokens around it."""
    long_text = "fox " * 400
    async with pooling_server(encoder_folder("bert")) as client:
        refused = await client.post(EMBEDDINGS, {"input": long_text})
        cut = await client.post(EMBEDDINGS, {"input": long_text, "truncate_prompt_tokens": 9})
        whole = await client.post(EMBEDDINGS, {"input": long_text, "truncate_prompt_tokens": -1})
        short = await client.post(EMBEDDINGS, {"input": "fox " * 7})
        wrong = await client.post(EMBEDDINGS, {"input": TEXT, "truncate_prompt_tokens": 5000})

    assert refused.status == 400
    assert "maximum context length is 130" in refused.error["message"]
    assert "reduce the length of input," in refused.error["message"]
    assert refused.error["param"] == "input"
    assert cut.json["usage"]["prompt_tokens"] == 9
    assert whole.json["usage"]["prompt_tokens"] == 130
    assert torch.equal(vectors(cut), vectors(short))
    assert wrong.error["param"] == "truncate_prompt_tokens"


async def test_embeddings_are_cut_only_for_models_that_were_trained_for_it(
    encoder_folder: MakeFolder,
) -> None:
    """Matryoshka: by config.json or an override of it, and within the model's width."""
    overrides = {"is_matryoshka": True}
    async with pooling_server(encoder_folder("bert")) as client:
        refused = await client.post(EMBEDDINGS, {"input": TEXT, "dimensions": 16})
        whole = vectors(await client.post(EMBEDDINGS, {"input": TEXT}))[0]
    async with pooling_server(encoder_folder("bert"), hf_overrides=overrides) as client:
        cut = vectors(await client.post(EMBEDDINGS, {"input": TEXT, "dimensions": 16}))[0]
        too_wide = await client.post(EMBEDDINGS, {"input": TEXT, "dimensions": 65})
    listed = {"matryoshka_dimensions": [16, 32]}
    async with pooling_server(encoder_folder("bert"), hf_overrides=listed) as client:
        unlisted = await client.post(EMBEDDINGS, {"input": TEXT, "dimensions": 17})

    assert (refused.status, refused.error["param"]) == (400, "dimensions")
    assert "Matryoshka" in refused.error["message"]
    expected = whole[:16] / whole[:16].norm()
    torch.testing.assert_close(cut, expected, rtol=0, atol=1e-6)
    assert "1 to 64" in too_wide.error["message"]
    assert "one of 16, 32" in unlisted.error["message"]


async def test_vectors_may_keep_their_length(encoder_folder: MakeFolder) -> None:
    """By a field of the request, or for all by --pooler-config."""
    states = hidden_states(make_encoder("bert"), IDS)
    async with pooling_server(encoder_folder("bert")) as client:
        by_field = vectors(await client.post(EMBEDDINGS, {"input": IDS, "use_activation": False}))
    wanted = {"pooling_type": "CLS", "use_activation": False}
    async with pooling_server(encoder_folder("bert"), pooler_config=wanted) as client:
        by_flag = vectors(await client.post(EMBEDDINGS, {"input": IDS}))

    torch.testing.assert_close(by_field[0], states.mean(dim=0), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(by_flag[0], states[0], rtol=1e-4, atol=1e-4)


async def test_a_chat_is_embedded_as_the_template_renders_it(encoder_folder: MakeFolder) -> None:
    """vLLM's form with messages; together with input it is refused."""
    template = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
    messages = [{"role": "user", "content": "quick fox"}]
    config = ServerConfig(chat_template=template)
    async with pooling_server(encoder_folder("bert"), config) as client:
        chat = await client.post(EMBEDDINGS, {"messages": messages, "add_special_tokens": True})
        text = await client.post(EMBEDDINGS, {"input": "user quick fox "})
        both = await client.post(EMBEDDINGS, {"messages": messages, "input": TEXT})

    assert torch.equal(vectors(chat), vectors(text))
    assert both.error["param"] == "messages"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [[]]}, "input"),
        ({"input": ["a", 3]}, "input"),
        ({"input": [5000]}, "input"),
        ({"input": TEXT, "encoding_format": "xml"}, "encoding_format"),
        ({"input": TEXT, "embed_dtype": "int4"}, "embed_dtype"),
        ({"input": TEXT, "dimensions": 0}, "dimensions"),
        ({"input": TEXT, "normalize": True}, "normalize"),
        ({"input": TEXT, "priority": 4}, "priority"),
        ({"input": TEXT, "timeout": -1}, "timeout"),
    ],
)
async def test_a_bad_field_is_refused_by_name(
    encoder_folder: MakeFolder, fields: dict[str, Any], param: str
) -> None:
    """With status 400."""
    async with pooling_server(encoder_folder("bert")) as client:
        reply = await client.post(EMBEDDINGS, fields)

    assert (reply.status, reply.error["param"]) == (400, param)


async def test_each_kind_of_model_says_what_the_other_is_for(encoder_folder: MakeFolder) -> None:
    """Status 400 with the flag or the task that would help."""
    async with scripted_server() as client:
        no_vectors = await client.post(EMBEDDINGS, {"input": TEXT})
        no_scores = await client.post("/score", {"text_1": "a", "text_2": "b"})
    async with pooling_server(encoder_folder("bert")) as client:
        no_text = await client.post("/v1/completions", {"prompt": TEXT})
        chat: dict[str, Any] = {"messages": [{"role": "user", "content": TEXT}]}
        no_chat = await client.post("/v1/chat/completions", chat)
        no_message = await client.post("/v1/messages", chat | {"max_tokens": 3, "model": "tiny"})
        no_labels = await client.post("/classify", {"input": TEXT})
    async with pooling_server(encoder_folder("bert_classifier")) as client:
        no_embedding = await client.post(EMBEDDINGS, {"input": TEXT})
        no_score = await client.post("/score", {"text_1": "a", "text_2": "b"})

    assert "--runner pooling" in no_vectors.error["message"]
    assert "--runner pooling" in no_scores.error["message"]
    for reply in (no_text, no_chat, no_message):
        assert "its tasks are embed and token_embed" in reply.error["message"]
    assert "it can embed and token_embed" in no_labels.error["message"]
    assert "it can classify and token_classify" in no_embedding.error["message"]
    assert "this one has 3" in no_score.error["message"]
    replies = (
        no_vectors,
        no_scores,
        no_text,
        no_chat,
        no_message,
        no_labels,
        no_embedding,
        no_score,
    )
    assert {400} == {reply.status for reply in replies}


async def test_pooling_gives_vectors_of_tokens_on_request(encoder_folder: MakeFolder) -> None:
    """Without a task it gives what the model was made for."""
    states = hidden_states(make_encoder("bert"), IDS)
    async with pooling_server(encoder_folder("bert")) as client:
        plain = await client.post("/pooling", {"input": IDS})
        tokens = await client.post(
            "/pooling", {"input": IDS, "task": "token_embed", "use_activation": False}
        )
        wrong = await client.post("/pooling", {"input": IDS, "task": "score"})
        plugin = await client.post("/pooling", {"input": IDS, "task": "plugin"})

    assert plain.json["data"][0]["object"] == "pooling"
    vector = torch.tensor(plain.json["data"][0]["data"])
    torch.testing.assert_close(vector, expected_vector(IDS), rtol=1e-4, atol=1e-5)
    made = torch.tensor(tokens.json["data"][0]["data"])
    torch.testing.assert_close(made, states, rtol=1e-4, atol=1e-4)
    assert wrong.error["param"] == plugin.error["param"] == "task"
    assert plugin.error["message"].startswith("No IOProcessor plugin installed.")


async def test_classify_names_the_likeliest_label(encoder_folder: MakeFolder) -> None:
    """Probabilities of all labels, or bare scores."""
    scores = class_scores(make_encoder("bert_classifier"), IDS)
    labels = {"id2label": {"0": "cat", "1": "dog", "2": "fox"}}
    async with pooling_server(encoder_folder("bert_classifier"), hf_overrides=labels) as client:
        reply = await client.post("/classify", {"input": [IDS, IDS]})
        bare = await client.post("/classify", {"input": IDS, "use_activation": False})

    data = reply.json["data"]
    assert [0, 1] == [entry["index"] for entry in data]
    assert data[0]["label"] == ("cat", "dog", "fox")[int(scores.argmax())]
    assert data[0]["num_classes"] == 3
    torch.testing.assert_close(
        torch.tensor(data[0]["probs"]), scores.softmax(dim=0), rtol=1e-3, atol=1e-4
    )
    torch.testing.assert_close(
        torch.tensor(bare.json["data"][0]["probs"]), scores, rtol=1e-3, atol=1e-4
    )


async def test_ollama_embeds_in_both_of_its_ways(encoder_folder: MakeFolder) -> None:
    """/api/embed takes many and cuts what is too long, /api/embeddings takes one prompt."""
    async with pooling_server(encoder_folder("bert")) as client:
        several = await client.post("/api/embed", {"model": "tiny", "input": [TEXT, "fox " * 400]})
        strict = await client.post(
            "/api/embed", {"model": "tiny", "input": "fox " * 400, "truncate": False}
        )
        loads = await client.post("/api/embed", {"model": "tiny:latest"})
        older = await client.post("/api/embeddings", {"model": "tiny", "prompt": TEXT})
        ours = vectors(await client.post(EMBEDDINGS, {"input": TEXT}))[0]
        missing = await client.post("/api/embed", {"model": "other", "input": TEXT})
        never = await client.post("/api/embed", {"model": "tiny", "input": TEXT, "timeout": -1})
        nor_here = await client.post(
            "/api/embeddings", {"model": "tiny", "prompt": TEXT, "timeout": -1}
        )

    answer = several.json
    torch.testing.assert_close(torch.tensor(answer["embeddings"][0]), ours, rtol=0, atol=1e-6)
    assert answer["prompt_eval_count"] > 130
    assert strict.status == 400
    assert loads.json["embeddings"] == []
    torch.testing.assert_close(torch.tensor(older.json["embedding"]), ours, rtol=0, atol=1e-6)
    assert missing.status == 404
    for refused in (never, nor_here):
        assert refused.status == 400
        assert "timeout must be a number" in refused.json["error"]
