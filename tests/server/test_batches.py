"""/v1/batches: lines become answers, once each, whatever happens in between."""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from octavo.contracts.step import StepPlan
from tests.support.asgi import scripted_server
from tests.support.asgi_socket import listening
from tests.support.batches import (
    COMPLETIONS,
    batch_server,
    begin,
    line,
    look_until,
    results,
    upload,
    wait_ended,
)
from tests.support.scripted_engine import BLOCK_SIZE, ROOM_FOR_ENDLESS, says
from tests.support.serving import Gate

ANSWERS = says({"One": " two", "Two": " three four five", "Three": " four"})
LINES = b"".join(line(word.lower(), prompt=word) for word in ("One", "Two", "Three"))
ENDLESS = {"ignore_eos": True, "max_tokens": 15_000}


def texts(lines: list[dict[str, Any]]) -> dict[str, str]:
    return {one["custom_id"]: one["response"]["body"]["choices"][0]["text"] for one in lines}


async def test_a_batch_answers_every_line_in_the_order_of_the_input(tmp_path: Path) -> None:
    """The answers are those of the route; the counts add up."""
    async with batch_server(tmp_path / "s", ANSWERS) as client:
        made = await begin(client, LINES, metadata={"team": "red"})
        ended = await wait_ended(client, made["id"])
        lines = await results(client, ended["output_file_id"])

    assert (made["status"], made["object"]) == ("validating", "batch")
    assert ended["status"] == "completed"
    assert ended["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
    assert ended["error_file_id"] is None
    assert ended["metadata"] == {"team": "red"}
    assert ended["created_at"] <= ended["in_progress_at"] <= ended["completed_at"]
    assert [one["custom_id"] for one in lines] == ["one", "two", "three"]
    assert texts(lines) == {"one": " two", "two": " three four five", "three": " four"}
    assert all(one["error"] is None and one["id"] for one in lines)
    assert {one["response"]["status_code"] for one in lines} == {200}


async def test_lines_that_are_refused_go_to_the_error_file(tmp_path: Path) -> None:
    """With the answer that the route gave; the others are not touched."""
    content = line("good", prompt="One") + line("bad", prompt="One", temperature=9)
    async with batch_server(tmp_path / "s", ANSWERS) as client:
        ended = await wait_ended(client, (await begin(client, content))["id"])
        (good,) = await results(client, ended["output_file_id"])
        (bad,) = await results(client, ended["error_file_id"])

    assert ended["status"] == "completed"
    assert ended["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    assert good["custom_id"] == "good"
    assert bad["response"]["status_code"] == 400
    assert bad["response"]["body"]["error"]["param"] == "temperature"


@pytest.mark.parametrize(
    ("content", "code", "number"),
    [
        (b"", "empty_file", None),
        (b"\n\n", "empty_file", None),
        (LINES + b"{", "invalid_line", 4),
        (line("a", prompt="x") + b'{"custom_id": "b"}\n', "invalid_line", 2),
        (line("a", prompt="x", stream=True), "invalid_line", 1),
        (line("a", input="x", encoding_format="bytes"), "invalid_line", 1),
        (line("a", input="x", encoding_format="bytes_only"), "invalid_line", 1),
        (line("a", url="/v1/chat/completions"), "mismatched_url", 1),
        (line("a", prompt="x") + line("a", prompt="y"), "duplicate_custom_id", 2),
        (line("", prompt="x"), "invalid_line", 1),
        (line("a", prompt="x" * 5000), "line_too_long", 1),
        (b"".join(line(str(i), prompt="x") for i in range(9)), "too_many_lines", 9),
    ],
)
async def test_a_wrong_line_fails_the_batch_before_anything_is_computed(
    content: bytes, code: str, number: int | None, tmp_path: Path
) -> None:
    """The error names the line."""
    config = {"max_body_bytes": 4000, "max_batch_requests": 8}
    async with batch_server(tmp_path / "s", config=config) as client:
        file = (await upload(client, content)).json
        body = {"input_file_id": file["id"], "endpoint": COMPLETIONS, "completion_window": "24h"}
        made = (await client.post("/v1/batches", body)).json
        ended = await wait_ended(client, made["id"])

    assert ended["status"] == "failed"
    assert (ended["errors"]["data"][0]["code"], ended["errors"]["data"][0]["line"]) == (
        code,
        number,
    )
    assert ended["output_file_id"] is None


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"input_file_id": "file-0"}, "input_file_id"),
        ({"input_file_id": "x" * 61}, "input_file_id"),
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "99d"}, "completion_window"),
        ({"metadata": {"x" * 65: "y"}}, "metadata"),
        ({"metadata": {str(i): "y" for i in range(17)}}, "metadata"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, "seconds"),
    ],
)
async def test_a_wrong_batch_is_refused_by_the_name_of_the_field(
    change: dict[str, Any], param: str, tmp_path: Path
) -> None:
    """Before it is kept."""
    async with batch_server(tmp_path / "s") as client:
        file = (await upload(client, LINES)).json
        good = {"input_file_id": file["id"], "endpoint": COMPLETIONS, "completion_window": "24h"}
        reply = await client.post("/v1/batches", good | change)
        listed = (await client.get("/v1/batches")).json["data"]

    assert reply.status == (404 if change.get("input_file_id") == "file-0" else 400)
    assert str(reply.error["param"]).endswith(param)
    assert listed == []


async def test_a_restart_computes_only_what_has_no_result(tmp_path: Path) -> None:
    """Lines that were done before the end are not done again; those that ran are."""
    seen: list[str] = []
    answers = says({"One": " two", "Two": " three", "Three": " four"})

    def noting(request_id: str, token_ids: Any, num_prompt_tokens: int) -> int:
        if len(token_ids) == num_prompt_tokens:
            seen.append(re.split("[-/]", request_id)[1])
        return answers(request_id, token_ids, num_prompt_tokens)

    gate = Gate()
    content = line("one", prompt="One", request_id="one") + line("two", **ENDLESS, prompt="Slow")
    content += line("three", prompt="Three", request_id="three")
    async with batch_server(
        tmp_path / "s", noting, config={"batch_concurrency": 1}, **ROOM_FOR_ENDLESS
    ) as client:
        made = await begin(client, content)
        before = await look_until(
            client, made["id"], lambda shown: shown["request_counts"]["completed"] == 1
        )
    first = [name for name in seen if name in ("one", "three")]
    gate.open()
    async with batch_server(tmp_path / "s", noting, max_model_len=64) as client:
        ended = await wait_ended(client, made["id"])
        counts = ended["request_counts"]
        lines = await results(client, ended["output_file_id"])

    assert before["status"] == "in_progress"
    assert first == ["one"]
    assert [name for name in seen if name in ("one", "three")] == ["one", "three"]
    assert counts == {"total": 3, "completed": 2, "failed": 1}
    assert [one["custom_id"] for one in lines] == ["one", "three"]


async def test_a_cancelled_batch_keeps_what_was_done(tmp_path: Path) -> None:
    """And nothing of it holds a block afterwards; cancelling again is a conflict."""
    content = line("one", prompt="One") + line("slow", prompt="Slow", **ENDLESS)
    async with batch_server(tmp_path / "s", ANSWERS, **ROOM_FOR_ENDLESS) as client:
        made = await begin(client, content)
        await look_until(
            client, made["id"], lambda shown: shown["request_counts"]["completed"] == 1
        )
        marked = (await client.post(f"/v1/batches/{made['id']}/cancel")).json
        ended = await wait_ended(client, made["id"])
        (kept,) = await results(client, ended["output_file_id"])
        stats = await client.state.engine.stats()
        again = await client.post(f"/v1/batches/{made['id']}/cancel")

    assert (marked["status"], ended["status"]) == ("cancelling", "cancelled")
    assert kept["custom_id"] == "one"
    assert (stats.num_running, stats.num_used_blocks) == (0, 0)
    assert (again.status, again.error["param"]) == (409, "batch_id")


async def test_when_the_window_ends_the_rest_of_the_lines_fail(tmp_path: Path) -> None:
    """Each has a line in the error file that says so; what was done stays an answer."""
    content = line("one", prompt="One") + line("slow", prompt="Slow", **ENDLESS)
    async with batch_server(tmp_path / "s", ANSWERS, **ROOM_FOR_ENDLESS) as client:
        made = await begin(client, content)
        await look_until(
            client, made["id"], lambda shown: shown["request_counts"]["completed"] == 1
        )

    def tomorrow_s() -> float:
        return time.time() + 86_401

    async with batch_server(tmp_path / "s", ANSWERS, wall_s=tomorrow_s) as client:
        ended = await wait_ended(client, made["id"])
        (done,) = await results(client, ended["output_file_id"])
        (late,) = await results(client, ended["error_file_id"])

    assert ended["status"] == "expired"
    assert (done["custom_id"], late["custom_id"]) == ("one", "slow")
    assert (late["response"], late["error"]["code"]) == (None, "batch_expired")


async def test_live_requests_go_first(tmp_path: Path) -> None:
    """While every row is taken by live requests no line begins."""
    async with batch_server(
        tmp_path / "s", ANSWERS, scheduler={"max_num_seqs": 2}, **ROOM_FOR_ENDLESS
    ) as client:
        with client.state.admitted(2):
            made = await begin(client, LINES)
            held = await look_until(
                client, made["id"], lambda shown: shown["status"] == "in_progress"
            )
            live = await client.post(COMPLETIONS, {"prompt": "One"})
            still = (await client.get(f"/v1/batches/{made['id']}")).json
        ended = await wait_ended(client, made["id"])

    assert live.status == 200
    assert held["request_counts"]["completed"] == still["request_counts"]["completed"] == 0
    assert ended["request_counts"]["completed"] == 3


async def test_few_lines_run_at_once(tmp_path: Path) -> None:
    """--batch-concurrency is the most that a batch may take of the machine."""
    gate = Gate()
    sizes = []

    def noting(plan: StepPlan) -> None:
        sizes.append(len(plan.rows))
        gate.before_run(plan)

    async with batch_server(
        tmp_path / "s", says({}), config={"batch_concurrency": 2}, before_run=noting
    ) as client:
        content = b"".join(line(str(i), prompt=f"p{i}", max_tokens=8) for i in range(8))
        made = await begin(client, content)
        await look_until(client, made["id"], lambda _: client.state.num_choices == 2)
        gate.open()
        ended = await wait_ended(client, made["id"])

    assert ended["request_counts"]["completed"] == 8
    assert max(sizes) == 2


async def test_a_full_queue_delays_a_line_and_fails_none(tmp_path: Path) -> None:
    """429 from the route is no answer of a batch."""
    async with batch_server(
        tmp_path / "s", ANSWERS, config={"max_queued_requests": 1}, scheduler={"max_num_seqs": 1}
    ) as client:
        ended = await wait_ended(client, (await begin(client, LINES))["id"])

    assert ended["request_counts"] == {"total": 3, "completed": 3, "failed": 0}


async def test_lines_take_no_place_in_the_queue_from_live_requests(tmp_path: Path) -> None:
    """Three blocks hold one line, and rows are free for all of them: none of the others waits."""
    gate = Gate()
    two_blocks = [[5 + number] * 2 * BLOCK_SIZE for number in range(5)]
    async with batch_server(
        tmp_path / "s",
        config={"max_queued_requests": 1, "batch_concurrency": 4},
        num_blocks=3,
        before_run=gate.before_run,
    ) as client:
        lines = (line(str(i), prompt=ids, max_tokens=1) for i, ids in enumerate(two_blocks[1:]))
        made = await begin(client, b"".join(lines))
        await asyncio.to_thread(gate.is_reached.wait, 30)
        await look_until(client, made["id"], lambda _: client.state.num_choices == 4)
        asked = client.post(COMPLETIONS, {"prompt": two_blocks[0], "max_tokens": 1})
        live = asyncio.ensure_future(asked)
        await look_until(client, made["id"], lambda _: client.state.num_choices == 5)
        gate.open()
        ended = await wait_ended(client, made["id"])

    assert (await live).status == 200
    assert ended["request_counts"]["completed"] == 4


async def test_batches_are_listed_newest_first_in_pages(tmp_path: Path) -> None:
    """`after` goes on where a page ended."""
    async with batch_server(tmp_path / "s", ANSWERS) as client:
        made = [(await begin(client, LINES))["id"] for _ in range(3)]
        first = (await client.get("/v1/batches?limit=2")).json
        second = (await client.get(f"/v1/batches?limit=2&after={first['last_id']}")).json
        for batch_id in made:
            await wait_ended(client, batch_id)

    found = [one["id"] for one in first["data"] + second["data"]]
    assert sorted(found) == sorted(made)
    assert (first["has_more"], second["has_more"]) == (True, False)


async def test_a_batch_belongs_to_its_key(tmp_path: Path) -> None:
    """Others see neither it nor its files, and cannot use or end them."""
    config = {"api_key": ("key-of-ann", "key-of-ben")}
    ann, ben = ({"authorization": f"Bearer {key}"} for key in config["api_key"])
    async with batch_server(tmp_path / "s", ANSWERS, config=config) as client:
        made = await begin(client, LINES, headers=ann)
        ended = await wait_ended(client, made["id"], headers=ann)
        listed = (await client.get("/v1/batches", headers=ben)).json["data"]
        files = (await client.get("/v1/files", headers=ben)).json["data"]
        statuses = [
            (await client.send(method, path, headers=ben)).status
            for method, path in (
                ("GET", f"/v1/batches/{made['id']}"),
                ("POST", f"/v1/batches/{made['id']}/cancel"),
                ("GET", f"/v1/files/{made['input_file_id']}"),
                ("GET", f"/v1/files/{ended['output_file_id']}/content"),
                ("DELETE", f"/v1/files/{ended['output_file_id']}"),
            )
        ]
        body = {
            "input_file_id": made["input_file_id"],
            "endpoint": COMPLETIONS,
            "completion_window": "24h",
        }
        used = await client.post("/v1/batches", body, headers=ben)

    assert (listed, files) == ([], [])
    assert statuses == [404] * 5
    assert used.status == 404


async def test_without_a_store_the_answer_names_the_option() -> None:
    """404 and --batch-store."""
    async with scripted_server() as client:
        replies = [await client.get(path) for path in ("/v1/files", "/v1/batches")]

    assert [reply.status for reply in replies] == [404, 404]
    assert all("--batch-store" in reply.error["message"] for reply in replies)


async def test_the_official_client_runs_a_batch(tmp_path: Path) -> None:
    """Upload, create, poll, read: as in OpenAI's documentation."""
    async with (
        batch_server(tmp_path / "s", ANSWERS) as client,
        listening(client.app) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as official,
    ):
        (tmp_path / "in.jsonl").write_bytes(LINES)
        file = await official.files.create(file=tmp_path / "in.jsonl", purpose="batch")
        batch = await official.batches.create(
            input_file_id=file.id,
            endpoint="/v1/completions",
            completion_window="24h",
            metadata={"a": "b"},
        )
        await wait_ended(client, batch.id)
        batch = await official.batches.retrieve(batch.id)
        assert batch.output_file_id is not None
        content = await official.files.content(batch.output_file_id)
        listed = [one.id async for one in official.batches.list(limit=1)]
        files = [one.filename async for one in official.files.list(purpose="batch")]
        deleted = await official.files.delete(file.id)

    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.completed == 3
    assert texts([json.loads(one) for one in content.text.splitlines()])["one"] == " two"
    assert (listed, files, deleted.deleted) == ([batch.id], ["in.jsonl"], True)
