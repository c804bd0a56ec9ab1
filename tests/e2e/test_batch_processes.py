"""Real processes: a batch that survives a killed server, behind TLS and a key; run-batch."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.support.batches import FORM, form, line
from tests.support.certificates import make_certificate
from tests.support.data import smollm2_path
from tests.support.server_process import ServerProcess

SMALL = ("--max-model-len", "512", "--max-num-seqs", "4")
WORD = "marmalade"
NUM_LINES = 12
TIMEOUT_S = 60.0


def lines() -> bytes:
    return b"".join(
        line(str(number), prompt=f"{WORD} {number}", max_tokens=16, temperature=0)
        for number in range(NUM_LINES)
    )


def poll(look: Callable[[], dict[str, Any]], is_so: Callable[[dict[str, Any]], bool]) -> Any:
    """What `look` gives, as soon as it is as wanted."""
    end_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < end_s:
        shown = look()
        if is_so(shown):
            return shown
        time.sleep(0.02)
    raise AssertionError(f"it does not get there: {shown}")


def test_a_killed_server_goes_on_with_its_batch(tmp_path: Path) -> None:
    """Every line has one answer; the log has neither prompts nor the key. A removed key is out."""
    keys = str(tmp_path / "keys.yaml")
    add = ["keys", "add", "ann", "--api-keys-file", keys]
    key = subprocess.run(
        [sys.executable, "-m", "octavo", *add], check=True, capture_output=True, text=True
    ).stdout.strip()
    certificate, private = make_certificate(tmp_path, "server")
    trusted = ssl.create_default_context(cafile=certificate)
    arguments = [str(smollm2_path()), *SMALL, "--api-keys-file", keys, "--ssl-certfile"]
    arguments += [certificate, "--ssl-keyfile", private, "--batch-concurrency", "2"]
    arguments += ["--batch-store", str(tmp_path / "store")]
    headers = {"authorization": f"Bearer {key}"}

    def client_of(server: ServerProcess) -> httpx.Client:
        url = server.wait_ready()
        return httpx.Client(base_url=url, headers=headers, verify=trusted)

    first = ServerProcess(arguments)
    try:
        with client_of(first) as client:
            file = client.post("/v1/files", content=form(lines()), headers=FORM).json()["id"]
            body = {
                "input_file_id": file,
                "endpoint": "/v1/completions",
                "completion_window": "24h",
            }
            path = "/v1/batches/" + client.post("/v1/batches", json=body).json()["id"]
            before = poll(
                lambda: client.get(path).json(), lambda one: one["request_counts"]["completed"] >= 2
            )
    finally:
        first.process.kill()
        first.process.wait()
    second = ServerProcess(arguments)
    try:
        with client_of(second) as client:
            resumed = client.get(path).json()
            ended = poll(lambda: client.get(path).json(), lambda one: one["status"] == "completed")
            output = client.get(f"/v1/files/{ended['output_file_id']}/content").text
            subprocess.run([sys.executable, "-m", "octavo", "keys", "remove", *add[2:]], check=True)
            second.process.send_signal(signal.SIGHUP)
            poll(lambda: {"status": client.get(path).status_code}, lambda one: one["status"] == 401)
    finally:
        second.stop()
    answers = [json.loads(text) for text in output.splitlines()]

    assert 2 <= before["request_counts"]["completed"] < NUM_LINES
    assert resumed["request_counts"]["completed"] >= before["request_counts"]["completed"]
    assert [one["custom_id"] for one in answers] == [str(number) for number in range(NUM_LINES)]
    assert ended["request_counts"] == {"total": NUM_LINES, "completed": NUM_LINES, "failed": 0}
    for server in (first, second):
        assert WORD not in server.log
        assert key not in server.log


def test_run_batch_computes_a_file(tmp_path: Path) -> None:
    """With a model, from the command line; one bad line makes the exit code 1."""
    (tmp_path / "in").write_bytes(lines() + line("bad", prompt="x", n=0))
    command = [sys.executable, "-m", "octavo", "run-batch", "-i", str(tmp_path / "in")]
    command += ["-o", str(tmp_path / "out"), "--model", str(smollm2_path()), *SMALL]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT_S)
    answers = [json.loads(text) for text in (tmp_path / "out").read_text().splitlines()]

    assert done.returncode == 1, done.stderr
    assert f"{NUM_LINES + 1} lines, 1 of them failed" in done.stderr
    assert [one["response"]["status_code"] for one in answers] == [200] * NUM_LINES + [400]
    assert all(one["response"]["body"]["choices"][0]["text"] for one in answers[:-1])
