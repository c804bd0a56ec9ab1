"""/v1/completions: shapes, streams, echo, logprobs, several prompts, the client that leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from tests.support.asgi import Reply, scripted_server
from tests.support.scripted_engine import ENDLESS, ROOM_FOR_ENDLESS, says

PATH = "/v1/completions"


def body(prompt: Any = "hello", **fields: Any) -> dict[str, Any]:
    """A greedy request."""
    return {"prompt": prompt, "temperature": 0, "max_tokens": 12, **fields}


def joined(reply: Reply, index: int = 0) -> str:
    """The text of one choice of a stream."""
    choices = [choice for chunk in reply.chunks for choice in chunk["choices"]]
    return "".join(choice["text"] for choice in choices if choice["index"] == index)


async def test_a_whole_answer_has_openais_shape() -> None:
    """Ids, object, usage and finish reason are where clients look for them."""
    async with scripted_server(says({"hello": " world"})) as client:
        answer = (await client.post(PATH, body())).json

    choice = answer["choices"][0]
    assert answer["object"] == "text_completion"
    assert answer["id"].startswith("cmpl-")
    assert choice["text"] == " world"
    assert choice["finish_reason"] == "stop"
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_a_stream_joins_to_the_whole_answer() -> None:
    """The same text and finish reason in both modes, text only before the finish."""
    async with scripted_server(says({"hello": " my dear old friend"})) as client:
        whole = (await client.post(PATH, body())).json["choices"][0]
        streamed = await client.post(PATH, body(stream=True))

    finishes = [chunk["choices"][0]["finish_reason"] for chunk in streamed.chunks]
    assert joined(streamed) == whole["text"]
    assert finishes[-1] == whole["finish_reason"]
    assert set(finishes[:-1]) <= {None}
    assert streamed.headers["content-type"].startswith("text/event-stream")


async def test_usage_comes_last_and_only_on_request() -> None:
    """With include_usage all other chunks say null; without it none has the key."""
    async with scripted_server() as client:
        plain = await client.post(PATH, body(stream=True))
        asked = await client.post(PATH, body(stream=True, stream_options={"include_usage": True}))

    assert all("usage" not in chunk for chunk in plain.chunks)
    *others, last = asked.chunks
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 12
    assert all(chunk["usage"] is None for chunk in others)


async def test_several_prompts_are_answered_in_order() -> None:
    """Each choice has the index of its prompt, in both modes."""
    script = says({"one": " first", "two": " second"})
    async with scripted_server(script) as client:
        whole = (await client.post(PATH, body(["one", "two"]))).json
        streamed = await client.post(PATH, body(["one", "two"], stream=True))

    assert [choice["text"] for choice in whole["choices"]] == [" first", " second"]
    assert [joined(streamed, 0), joined(streamed, 1)] == [" first", " second"]


async def test_echo_puts_the_prompt_before_the_text() -> None:
    """In both modes, once for each choice."""
    async with scripted_server(says({"hello": " world"})) as client:
        whole = (await client.post(PATH, body(echo=True))).json["choices"][0]["text"]
        streamed = joined(await client.post(PATH, body(echo=True, stream=True)))

    assert whole == streamed == "hello world"


async def test_no_tokens_with_echo_scores_the_prompt() -> None:
    """max_tokens 0 gives the prompt and its logprobs, and counts no generated token."""
    async with scripted_server() as client:
        answer = (await client.post(PATH, body(echo=True, max_tokens=0, logprobs=1))).json

    choice = answer["choices"][0]
    assert choice["text"] == "hello"
    assert answer["usage"]["completion_tokens"] == 0
    assert len(choice["logprobs"]["tokens"]) == answer["usage"]["prompt_tokens"]
    assert choice["logprobs"]["token_logprobs"][0] is None


async def test_logprob_lists_run_in_parallel_and_offsets_point_at_tokens() -> None:
    """Four lists of one length; each token stands in the text at its offset."""
    async with scripted_server(says({"hello": " my dear"})) as client:
        answer = (await client.post(PATH, body(echo=True, logprobs=2))).json["choices"][0]

    lists = answer["logprobs"]
    assert len({len(values) for values in lists.values()}) == 1
    for token, offset in zip(lists["tokens"], lists["text_offset"], strict=True):
        assert answer["text"].startswith(token, offset) or token == "<|end|>"


async def test_a_client_that_leaves_a_stream_ends_its_request() -> None:
    """After the disconnect nothing runs and no block is held."""
    async with scripted_server(**ROOM_FOR_ENDLESS) as client:
        reply = await client.send(
            "POST",
            PATH,
            body(stream=True, max_tokens=ENDLESS, ignore_eos=True),
            on_piece=lambda reply: len(reply.pieces) >= 3,
        )
        stats = await client.state.engine.stats()

    assert len(reply.pieces) < ENDLESS
    assert (stats.num_running, stats.num_waiting, stats.num_used_blocks) == (0, 0, 0)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"logit_bias": {"cat": 1}}, "logit_bias"),
        ({"logit_bias": {"999999": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt": [999999]}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"stop": [""]}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"suffix": "end"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"structured_outputs": {"regex": "["}}, "structured_outputs"),
        ({"thinking_token_budget": 5}, "thinking_token_budget"),
        ({"stream_options": {"include_usage": True}, "stream": False}, "stream_options"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 10**12}, "max_tokens"),
        ({"best_of": 0}, "best_of"),
    ],
)
async def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    """400, one error form, the field's name in `param`; the next request works."""
    async with scripted_server() as client:
        for stream in (False, True):
            reply = await client.post(PATH, body(**({"stream": stream} | fields)))

            assert reply.status == 400, reply.content
            assert set(reply.error) == {"message", "type", "param", "code"}
            assert reply.error["param"] == param
        assert (await client.post(PATH, body())).status == 200


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"priority": 1.5}, "priority must be a whole number, got a fraction; correct it, or"),
        ({"n": 1.5}, "n must be a whole number, got a fraction; correct it, or leave it out"),
        ({"timeout": True}, "timeout must be a number, got true or false; correct it, or"),
        ({"stream": "maybe"}, "stream must be true or false, got a text; correct it, or"),
        ({"stop": 5}, "stop must be a text or a list, got a whole number; correct it, or"),
        ({"stop": [1]}, "stop[0] must be a text, got a whole number"),
        ({"logit_bias": []}, "logit_bias must be an object, got a list; correct it, or"),
        ({"best_of": 0}, "best_of is not supported; leave it out, got 0"),
        ({"best_of": 3}, "best_of is not supported; ask for n=3 choices"),
    ],
)
async def test_the_message_says_what_would_be_right(fields: dict[str, Any], message: str) -> None:
    async with scripted_server() as client:
        reply = await client.post(PATH, {"prompt": "hello", **fields})

    assert reply.error["message"].startswith(message)


@pytest.mark.parametrize("raw", [b"{:", b"", b"[]", b'"x"', b"null", b"7", b'{"prompt": "\xff"}'])
async def test_a_body_that_is_no_object_is_refused(raw: bytes) -> None:
    """Broken JSON and JSON of another kind get 400."""
    async with scripted_server() as client:
        assert (await client.post(PATH, raw)).status == 400


async def test_one_bad_prompt_among_several_starts_nothing() -> None:
    """The good prompt of the same request is not generated either."""
    async with scripted_server() as client:
        reply = await client.post(PATH, body(["good", ""]))
        stats = await client.state.engine.stats()

    assert reply.status == 400
    assert stats.num_prompt_tokens == 0


async def test_a_body_beyond_the_limit_is_refused_before_it_is_read() -> None:
    """413 by the announced length, and by the read one."""
    config = ServerConfig(max_body_bytes=2048)
    async with scripted_server(config=config) as client:
        announced = await client.post(PATH, body(), headers={"content-length": "9999999"})
        read = await client.post(PATH, body("x" * 4000))

    assert (announced.status, read.status) == (413, 413)


async def test_an_unknown_model_gets_404_that_names_it() -> None:
    """The served names are told."""
    async with scripted_server() as client:
        reply = await client.post(PATH, body(model="nope"))

    assert reply.status == 404
    assert "nope" in reply.error["message"]
    assert "tiny" in reply.error["message"]


async def test_draining_waits_for_the_whole_of_a_stream_that_has_not_begun() -> None:
    """SIGTERM while the first token is computed: the answer is open until its end mark."""
    was_waiting = []
    async with scripted_server() as client:
        answers = client.state.open_answers
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def note(reply: Reply) -> bool:
            if reply.pieces[-1]:
                was_waiting.append(not drained.done())
            return False

        asking = asyncio.ensure_future(
            client.send("POST", PATH, body(stream=True, ignore_eos=True), on_piece=note)
        )
        while answers.count == 0:
            await asyncio.sleep(0)
        drained = asyncio.ensure_future(answers.wait_closed())
        reply = await asking
        await drained

    assert len(reply.pieces) > 2
    assert all(was_waiting)


async def test_a_default_limit_gives_way_to_the_context_and_a_given_one_is_refused() -> None:
    """Nobody asked for the limit of generation_config, so nobody is told that it does not fit."""
    facts = {"generation_defaults": {"max_new_tokens": 500}}
    prompt = [7] * 250
    async with scripted_server(facts=facts, max_model_len=256) as client:
        given = await client.post(PATH, body(prompt, max_tokens=500))
        reply = await client.post(PATH, {"prompt": prompt, "temperature": 0, "ignore_eos": True})

    assert given.status == 400
    assert reply.json["usage"]["total_tokens"] == 256


async def test_a_request_may_bring_its_own_id() -> None:
    """vLLM's `request_id`; one that would fill every chunk is refused."""
    async with scripted_server() as client:
        named = await client.post(PATH, body(request_id="job-7"))
        refused = await client.post(PATH, body(request_id="x" * 257))

    assert named.json["id"] == "cmpl-job-7"
    assert (refused.status, refused.error["param"]) == (400, "request_id")


async def test_a_text_that_cannot_fit_is_refused_by_its_characters() -> None:
    """Before a tokenizer spends seconds on it."""
    async with scripted_server(max_model_len=32) as client:
        reply = await client.post(PATH, body("word " * 2000))

    assert (reply.status, reply.error["param"]) == (400, "prompt")
    assert "characters" in reply.error["message"]


async def test_minus_one_shows_every_token() -> None:
    """Where --max-logprobs -1 allows it."""
    async with scripted_server(model={"max_logprobs": -1}) as client:
        answer = (await client.post(PATH, body(logprobs=-1, max_tokens=1))).json["choices"][0]

    assert len(answer["logprobs"]["top_logprobs"][0]) > 20
