"""An HTTP server on loopback that gives planned answers, for tests of our client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS = {"data": [{"id": "tiny"}, {"id": "other"}]}
DONE = b"data: [DONE]\n\n"


@dataclass
class StubServer:
    """What it answers, and what it was asked."""

    answers: dict[str, list[bytes]]  # path -> bodies, one a request, in order
    status: int = 200
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)


def events(chunks: Sequence[dict[str, Any]], *, end: bytes = DONE) -> bytes:
    """A stream of server-sent events."""
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + end


@contextmanager
def stub_server(
    paths: Mapping[str, list[bytes]] | None = None, /, **answers: list[bytes]
) -> Iterator[StubServer]:
    """The server, stopped at the end. `completions=[...]` plans `/v1/completions`."""
    named = {f"/v1/{name.replace('__', '/')}": bodies for name, bodies in answers.items()}
    stub = StubServer({"/v1/models": [json.dumps(MODELS).encode()], **named, **(paths or {})})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, stub))
    server.daemon_threads = True
    stub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, stub: StubServer, *args: Any) -> None:
        self._stub = stub
        super().__init__(*args)

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self._stub.bodies.append(json.loads(self.rfile.read(length)))
        self._answer()

    def _answer(self) -> None:
        self._stub.keys.add(self.headers.get("Authorization"))
        self.send_response(self._stub.status)
        self.end_headers()
        self.wfile.write(self._stub.answers[self.path].pop(0))

    def log_message(self, format: str, *args: object) -> None:
        """Tests print nothing."""
