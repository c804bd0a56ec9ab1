"""A real `octavo serve` process on the loopback, and what can be asked of it from outside.

Owns the process and its HTTP. Knows no workload. Whoever starts a server ends it, by its pid.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 300.0
_READY = re.compile(r"ready at http://([^:\s]+):(\d+)")


class Served:
    """One server that is ready; its log is read by a thread, so that it never blocks on a pipe."""

    def __init__(self, model: str, flags: Sequence[str]) -> None:
        self.lines: list[str] = []
        self.host, self.port = "", 0
        self._is_ready = threading.Event()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "octavo", "serve", model, "--port", "0", *flags],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None, "it is a pipe"
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()
        if not self._is_ready.wait(START_TIMEOUT_S) or not self.port:
            self.kill()
            raise RuntimeError("the server did not start:\n" + "".join(self.lines))

    @property
    def rss_mib(self) -> float:
        """Memory that the process holds now."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def complaints(self) -> list[str]:
        """Lines of the log that tell of a fault in the server."""
        return [line.rstrip() for line in self.lines if re.search(r"ERROR|CRITICAL|Trace", line)]

    def kill(self) -> None:
        """SIGKILL, at once."""
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        finally:
            self.kill()

    @asynccontextmanager
    async def sent(
        self, method: str, path: str, body: object = None, *, key: str = "", cut: bool = False
    ) -> AsyncGenerator[asyncio.StreamReader, None]:
        """A connection on which a request was sent, or only half of it; closed on leaving."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=2**26)
        payload = body if isinstance(body, bytes) else b""
        if body is not None and not isinstance(body, bytes):
            payload = json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nhost: {self.host}\r\nconnection: close\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(payload)}\r\n"
        head += f"authorization: Bearer {key}\r\n" if key else ""
        try:
            writer.write(head.encode() + b"\r\n" + payload[: len(payload) // (2 if cut else 1)])
            await writer.drain()
            yield reader
        finally:
            writer.transport.abort()

    async def ask(
        self, method: str, path: str, body: object = None, *, key: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the whole answer."""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            async with self.sent(method, path, body, key=key) as reader:
                status, headers = await read_head(reader)
                return status, headers, await read_body(reader, headers)

    async def post(self, path: str, body: object, *, key: str = "") -> dict[str, Any]:
        """The JSON of an answer that must be a success. Raises RuntimeError."""
        status, _, answer = await self.ask("POST", path, body, key=key)
        if status != 200:
            raise RuntimeError(f"{path} answered {status}: {answer[:400]!r}")
        found: dict[str, Any] = json.loads(answer)
        return found

    async def metrics(self, *, key: str = "") -> dict[str, float]:
        """Gauges and counters by name, summed over labels."""
        text = (await self.ask("GET", "/metrics", key=key))[2].decode()
        found: dict[str, float] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.partition("{")[0]
                found[name] = found.get(name, 0.0) + float(value)
        return found

    async def blocks(self, *, key: str = "") -> dict[str, Any]:
        """The whole of `/debug/kv`."""
        view: dict[str, Any] = json.loads((await self.ask("GET", "/debug/kv", key=key))[2])
        return view

    async def wait_idle(self, timeout_s: float, *, key: str = "") -> dict[str, Any]:
        """`/debug/kv` once no request is live, or as it is when the time is up."""
        end_s = time.monotonic() + timeout_s
        while True:
            view = await self.blocks(key=key)
            if not view["requests"] or time.monotonic() > end_s:
                return view
            await asyncio.sleep(0.05)

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.lines.append(line)
                found = _READY.search(line)
                if found is not None:
                    self.host, self.port = found[1], int(found[2])
                    self._is_ready.set()
        self._is_ready.set()  # it has ended; whoever waits looks at the log


def end_servers_on_term() -> None:
    """SIGTERM ends this process as Ctrl-C does, so that the servers are stopped on the way."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers, names in lower case."""
    status = int((await reader.readuntil(b"\r\n")).split()[1])
    headers = {}
    while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    return status, headers


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> bytes:
    """What follows the headers, put together from its chunks."""
    if headers.get("transfer-encoding") != "chunked":
        return await reader.read()
    whole = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        whole += (await reader.readexactly(size + 2))[:-2]
    return whole


def token_lists(answer: dict[str, Any]) -> list[list[int]]:
    """Token ids of all choices of an answer that was asked for with `return_token_ids`."""
    return [
        choice["token_ids"] for choice in sorted(answer["choices"], key=lambda one: one["index"])
    ]
