"""A real server process, the official client, many requests at once, and every way to end."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from octavo.weights.catalogue import CATALOGUE, DEFAULT_MODEL
from octavo.weights.durable import exclusive_lock
from tests.support.data import smollm2_path
from tests.support.server_process import ServerProcess, serving, socket_path

NUM_CLIENTS = 32
NUM_CLOSED_EARLY = 5
SMALL = ("--max-model-len", "1024", "--max-num-seqs", "16")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """The default model; tests share it and must leave it idle."""
    with serving(str(smollm2_path()), "--served-model-name", "smollm2", *SMALL) as running:
        yield running


def client_of(server: ServerProcess) -> openai.AsyncOpenAI:
    """The official client, without retries that would hide an error."""
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def question(number: int) -> dict[str, Any]:
    """One of many different greedy requests."""
    text = f"Write one sentence about the number {number} and the sea."
    return {
        "model": "smollm2",
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 12 + number % 5,
    }


async def whole(client: openai.AsyncOpenAI, number: int) -> str:
    """An answer that is not streamed."""
    answer = await client.chat.completions.create(**question(number))
    return answer.choices[0].message.content or ""


async def streamed(client: openai.AsyncOpenAI, number: int) -> str:
    """The pieces of a stream, joined."""
    stream = await client.chat.completions.create(**question(number), stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])


async def closed_early(client: openai.AsyncOpenAI, number: int) -> None:
    """A stream whose reader leaves after the first pieces."""
    request = question(number) | {"max_tokens": 400}
    stream = await client.chat.completions.create(**request, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()


async def test_32_clients_at_once_get_the_answers_of_requests_alone(server: ServerProcess) -> None:
    """Streams and whole answers mixed, five closed early; afterwards the engine is at rest."""
    async with client_of(server) as client:
        alone = [await whole(client, number) for number in range(NUM_CLIENTS)]
        jobs: list[Any] = []
        for number in range(NUM_CLIENTS):
            if number % 6 == 1 and number // 6 < NUM_CLOSED_EARLY:
                jobs.append(closed_early(client, number))
            else:
                jobs.append((streamed if number % 2 else whole)(client, number))
        together = await asyncio.gather(*jobs)

    assert together.count(None) == NUM_CLOSED_EARLY
    for number, text in enumerate(together):
        assert text in (None, alone[number]), number
    assert await _at_rest(server)


async def _at_rest(server: ServerProcess) -> bool:
    """Whether the gauges reach zero; an aborted request may still be in the step that runs."""
    for _ in range(100):
        gauges = _gauges(server)
        if gauges == (0.0, 0.0, 0.0):
            return True
        await asyncio.sleep(0.05)
    raise AssertionError(f"running, waiting, cache: {gauges}")


def _gauges(server: ServerProcess) -> tuple[float, float, float]:
    text = _get(server, "/metrics")[1].decode()
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    found = []
    for name in names:
        line = next(line for line in text.splitlines() if line.startswith(f"vllm:{name}{{"))
        found.append(float(line.rpartition(" ")[2]))
    return found[0], found[1], found[2]


def _get(server: ServerProcess, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=20)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


async def test_the_client_sees_errors_of_the_right_class(server: ServerProcess) -> None:
    """A wrong field is a bad request, an unknown model is not found; the next request works."""
    async with client_of(server) as client:
        with pytest.raises(openai.BadRequestError, match="temperature"):
            await client.chat.completions.create(**(question(1) | {"temperature": 9}))
        with pytest.raises(openai.NotFoundError, match="nope"):
            await client.chat.completions.create(**(question(1) | {"model": "nope"}))
        with pytest.raises(openai.BadRequestError, match="1024"):
            await client.completions.create(model="smollm2", prompt="word " * 3000)
        assert await whole(client, 1)


async def test_models_completions_and_logprobs_through_the_client(server: ServerProcess) -> None:
    """The client's own types parse what we send."""
    async with client_of(server) as client:
        models = [model.id async for model in client.models.list()]
        answer = await client.completions.create(
            model="smollm2", prompt="1, 2, 3, 4,", max_tokens=4, temperature=0, logprobs=2, n=1
        )
        several = await client.chat.completions.create(
            **(question(3) | {"n": 3, "temperature": 1.0, "seed": 7, "logprobs": True})
        )

    assert models == ["smollm2"]
    assert answer.choices[0].text.startswith(" 5")
    assert answer.choices[0].logprobs is not None
    assert [choice.index for choice in several.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in several.choices}) > 1


async def test_sigterm_lets_open_streams_end_and_refuses_new_requests() -> None:
    """The stream is whole, the process ends with 0, nothing hangs."""
    with serving(str(smollm2_path()), "--served-model-name", "smollm2", *SMALL) as server:
        async with client_of(server) as client:
            request = question(2) | {"max_tokens": 60}
            stream = await client.chat.completions.create(**request, stream=True)
            chunks = [await anext(aiter(stream))]
            server.process.send_signal(signal.SIGTERM)
            chunks += [chunk async for chunk in stream]
        code = server.wait_end()

    assert code == 0
    assert chunks[-1].choices[0].finish_reason in ("length", "stop")


async def test_sigint_ends_at_once() -> None:
    """An endless stream does not hold the process."""
    with serving(str(smollm2_path()), *SMALL) as server:
        async with client_of(server) as client:
            stream = await client.completions.create(
                model=(await client.models.list()).data[0].id,
                prompt="Long",
                max_tokens=900,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            await anext(aiter(stream))
            server.process.send_signal(signal.SIGINT)
            code = server.wait_end()

    assert code == 0


def test_a_second_signal_ends_a_server_that_hangs(tmp_path: Path) -> None:
    """Another process holds the lock of the download, so loading neither ends nor reports."""
    folder = CATALOGUE[0].folder_name
    lock = exclusive_lock(tmp_path / "models" / ".staging" / f"{folder}.lock")
    with lock, socket_path() as path:
        server = ServerProcess([DEFAULT_MODEL, "--uds", str(path)], {"OCTAVO_CACHE": str(tmp_path)})
        try:
            _wait_for(server, path, "phase", "waiting")
            server.process.send_signal(signal.SIGTERM)
            _wait_for(server, path, "status", "draining")
            server.process.send_signal(signal.SIGTERM)

            assert server.wait_end() == 128 + signal.SIGTERM
        finally:
            server.stop()


def _wait_for(server: ServerProcess, path: Path, field: str, value: str) -> None:
    """Until /ready on a Unix socket says so."""
    while _ready_over(path).get(field) != value:
        assert server.process.poll() is None, server.log


def _ready_over(path: Path) -> dict[str, Any]:
    """What /ready says on a Unix socket; nothing while nobody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(20)
        try:
            connection.connect(str(path))
        except OSError:
            return {}
        connection.sendall(b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        reply = b"".join(iter(lambda: connection.recv(4096), b""))
    status: dict[str, Any] = json.loads(reply.partition(b"\r\n\r\n")[2])
    return status


def test_a_unix_socket_serves_as_well() -> None:
    """--uds instead of a port."""
    with socket_path() as path, serving(str(smollm2_path()), "--uds", str(path), *SMALL):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(20)
        with connection:
            connection.connect(str(path))
            connection.sendall(b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            reply = b"".join(iter(lambda: connection.recv(4096), b""))

    assert reply.startswith(b"HTTP/1.1 200")
    assert json.loads(reply.partition(b"\r\n\r\n")[2]) == {"status": "ready"}


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--no-such-flag"], 2, "--no-such-flag"),
        (["--max-num-seqs", "0"], 2, "--max-num-seqs must be at least 1"),
        (["no-such-model-here"], 1, "no-such-model-here"),
        (["--num-gpu-blocks-override", "4"], 2, "--max-model-len 128"),
        (["--gpu-memory-utilization", "0.01", "--max-model-len", "auto"], 0, ""),
    ],
)
def test_a_wrong_start_ends_with_its_reason(arguments: list[str], code: int, told: str) -> None:
    """Exit code 2 for the command line, 1 for the model; the message names the fix."""
    model = [] if arguments[0] == "no-such-model-here" else [str(smollm2_path())]
    server = ServerProcess([*model, *arguments], {"HF_HUB_OFFLINE": "1"})
    try:
        if code == 0:
            server.wait_ready()
        else:
            assert server.wait_end() == code, server.log
            assert told in server.log
    finally:
        server.stop()


def test_a_truncated_model_file_is_refused(tmp_path: Path) -> None:
    """Before any weight is used, with the file's name."""
    path = tmp_path / "cut.gguf"
    with open(smollm2_path(), "rb") as whole_file:
        path.write_bytes(whole_file.read(50_000_000))

    server = ServerProcess([str(path)])

    assert server.wait_end() == 1
    assert "cut.gguf" in server.log


def test_a_busy_port_is_refused_with_a_free_one(server: ServerProcess) -> None:
    """The message names the next free port."""
    port = server.url.rpartition(":")[2]

    second = ServerProcess([str(smollm2_path()), "--port", port])

    assert second.wait_end() == 2
    assert f"port {port} is in use" in second.log


def test_a_killed_server_leaves_no_process() -> None:
    """There are no children that could survive."""
    with serving(str(smollm2_path()), *SMALL) as server:
        pid = server.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children")
        if children.exists():
            assert children.read_text() == ""
        os.kill(pid, signal.SIGKILL)
        assert server.process.wait(10) == -signal.SIGKILL
