"""A server as vLLM's tests start it, `RemoteOpenAIServer(model, args)`: `octavo-vllm serve`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import anthropic
import openai
import pytest
import requests

from vllm_shim.models import NoModelError, local_model, longest_context
from vllm_shim.names import get_open_port

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
KEY = "token-abc123"
# Of adapters; and of weights made up, where those of the stand-in do.
_LEFT_OUT = (
    "--enable-lora",
    "--lora-modules",
    "--max-lora-rank",
    "--max-cpu-loras",
    "--max-loras",
    "--load-format",
)
ROCM_EXTRA_ARGS: list[str] = []
multi_gpu_only = pytest.mark.skip(reason="several GPUs are not used")
requires_fp8 = pytest.mark.skip(reason="needs a GPU with fp8")


class RemoteOpenAIServer:
    """One server process; leaves with the block."""

    DUMMY_API_KEY = KEY
    show_hidden_metrics = False  # there are none

    def __init__(
        self,
        model: str,
        vllm_serve_args: Sequence[str],
        *,
        env_dict: Mapping[str, str] | None = None,
        seed: int | None = 0,
        auto_port: bool = True,
        **ignored: Any,
    ) -> None:
        arguments = _served_here(vllm_serve_args, longest_context(model))
        self.uds = _value_of(arguments, "--uds")
        if auto_port and self.uds is None:
            arguments += ["--port", str(get_open_port())]
        if "--max-model-len" not in arguments:
            arguments += ["--max-model-len", str(longest_context(model))]
        if seed is not None:
            arguments += ["--seed", str(seed)]
        if "--served-model-name" not in arguments:
            arguments += ["--served-model-name", model]
        if _value_of(arguments, "--host") is None:
            arguments += ["--host", "127.0.0.1"]  # `vllm serve` listens on every interface
        self.host = _value_of(arguments, "--host") or ""
        self.port = _value_of(arguments, "--port") or "8000"
        try:
            path = local_model(model)
        except NoModelError as error:
            pytest.skip(str(error), allow_module_level=True)
        self.proc = subprocess.Popen(
            [sys.executable, "-m", "vllm_shim.command", "serve", path, *arguments],
            env={**os.environ, **(env_dict or {})},
        )
        self._wait_ready()

    def __enter__(self) -> RemoteOpenAIServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop()

    @property
    def url_root(self) -> str:
        """Where it listens."""
        if self.uds:
            return "http://localhost"  # the test has a transport of its own
        return f"http://{self.host}:{self.port}"

    def url_for(self, *parts: str) -> str:
        """The URL of a path."""
        return "/".join((self.url_root, *(part.strip("/") for part in parts if part)))

    def _get_process_termination_timeout(self) -> float:
        return STOP_TIMEOUT_S

    def get_client(self, **options: Any) -> openai.OpenAI:
        """OpenAI's client."""
        options = {"timeout": 600, "max_retries": 0, **options}
        return openai.OpenAI(base_url=self.url_for("v1"), api_key=KEY, **options)

    def get_async_client(self, **options: Any) -> openai.AsyncOpenAI:
        """OpenAI's asynchronous client."""
        options = {"timeout": 600, "max_retries": 0, **options}
        return openai.AsyncOpenAI(base_url=self.url_for("v1"), api_key=KEY, **options)

    def get_client_anthropic(self, **options: Any) -> anthropic.Anthropic:
        """Anthropic's client."""
        return anthropic.Anthropic(
            base_url=self.url_for(), api_key=KEY, **{"max_retries": 0, **options}
        )

    def get_async_client_anthropic(self, **options: Any) -> anthropic.AsyncAnthropic:
        """Anthropic's asynchronous client."""
        return anthropic.AsyncAnthropic(
            base_url=self.url_for(), api_key=KEY, **{"max_retries": 0, **options}
        )

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            if self.proc.poll() is not None:
                raise RuntimeError(f"octavo serve ended with {self.proc.returncode}")
            if time.monotonic() > deadline:
                self._stop()
                raise RuntimeError("octavo serve did not become healthy in time")
            time.sleep(0.1)

    def _answers(self) -> bool:
        import httpx  # the one client at hand that speaks to Unix sockets

        transport = httpx.HTTPTransport(uds=self.uds) if self.uds else None
        base = "http://localhost" if self.uds else self.url_root
        try:
            with httpx.Client(transport=transport) as client:
                return client.get(f"{base}/health").status_code == requests.codes.ok
        except httpx.TransportError:
            return False

    def _stop(self) -> None:
        if self.proc.poll() is not None:
            return
        self.proc.send_signal(signal.SIGINT)
        try:
            self.proc.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.proc.kill()
            self.proc.wait()


def _served_here(arguments: Sequence[str], longest: int) -> list[str]:
    """The flags without those in `_LEFT_OUT`, and with no longer context than `longest`."""
    kept: list[str] = []
    words, is_left_out = iter(arguments), False
    for word in words:
        if word.startswith("--"):
            is_left_out = word in _LEFT_OUT
        if is_left_out:
            continue
        if word == "--max-model-len":
            kept += [word, str(min(int(next(words)), longest))]
        else:
            kept.append(word)
    return kept


def _value_of(arguments: Sequence[str], flag: str) -> str | None:
    """What follows a flag."""
    for place, word in enumerate(arguments):
        if word == flag:
            return arguments[place + 1]
        if word.startswith(flag + "="):
            return word.partition("=")[2]
    return None


class RemoteLaunchRenderServer:
    """vLLM's server without a model."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pytest.skip("there is no server without a model")
