"""The server under vLLM's name, started as its users start it."""

from __future__ import annotations

import http.client
import json
import sys
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.data import smollm2_path
from tests.support.server_process import serving

MODULE = (sys.executable, "-m", "octavo.entrypoints.openai.api_server")
BODY = {"model": "small", "prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}


def complete(port: int, key: str) -> tuple[int, str]:
    """Status and text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        connection.request("POST", "/v1/completions", json.dumps(BODY), headers)
        response = connection.getresponse()
        answer = json.load(response)
        return response.status, answer["choices"][0]["text"] if response.status == 200 else ""
    finally:
        connection.close()


def test_a_launch_file_of_vllms_starts_the_server_everywhere_and_says_so(tmp_path: Path) -> None:
    """Model, names and limits come from the file; vLLM's variable guards it."""
    file = tmp_path / "launch.yaml"
    file.write_text(
        f"model: {smollm2_path()}\nserved-model-name: small\nmax-model-len: 1k\n"
        "max-num-seqs: 4\nenforce-eager: true\ntensor-parallel-size: 1\n"
    )
    environment = {"VLLM_API_KEY": "secret"}
    with serving("--config", str(file), command=MODULE, environment=environment) as server:
        address = urlsplit(server.url)
        assert address.hostname == "0.0.0.0"
        assert "listening on every interface (0.0.0.0), as vllm does" in server.log
        assert "--enforce-eager has no effect: nothing is compiled at start (in " in server.log
        assert complete(address.port or 0, "wrong")[0] == 401
        assert complete(address.port or 0, "secret") == (200, " Paris.")
