"""A model hub on loopback with one repository; speaks what the hub's library asks of it."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REPOSITORY = "acme/tiny-llama"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class StubHub:
    """The files of the repository, and which of them were asked for."""

    files: dict[str, bytes]
    url: str = ""
    commit: str = COMMIT
    is_gated: bool = False
    sizes: dict[str, int] = field(default_factory=dict)  # what it claims instead of the truth
    fetched: list[str] = field(default_factory=list)  # files whose content was sent
    tokens: set[str | None] = field(default_factory=set)


@contextmanager
def stub_hub(files: dict[str, bytes]) -> Iterator[StubHub]:
    """The server, stopped at the end."""
    hub = StubHub(files)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, hub))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """Repository info, and files by branch or commit."""

    protocol_version = "HTTP/1.1"

    def __init__(self, hub: StubHub, *args: Any) -> None:
        self._hub = hub
        super().__init__(*args)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        hub = self._hub
        hub.tokens.add(self.headers.get("Authorization"))
        path = self.path.partition("?")[0]
        api = f"/api/models/{REPOSITORY}"
        if path in (api, f"{api}/revision/main", f"{api}/revision/{hub.commit}"):
            siblings = [
                {"rfilename": n, "size": hub.sizes.get(n, len(c))} for n, c in hub.files.items()
            ]
            info = {"id": REPOSITORY, "sha": hub.commit, "siblings": siblings}
            content = json.dumps(info).encode()
            self._send(content, {"Content-Type": "application/json"}, with_body)
            return
        for revision in ("main", hub.commit):
            prefix = f"/{REPOSITORY}/resolve/{revision}/"
            name = path.removeprefix(prefix)
            if path.startswith(prefix) and name in hub.files:
                self._send_file(name, with_body)
                return
        self._refuse(404, "RevisionNotFound" if REPOSITORY in path else "RepoNotFound")

    def _send_file(self, name: str, with_body: bool) -> None:
        if self._hub.is_gated:
            self._refuse(403, "GatedRepo")
            return
        content = self._hub.files[name]
        if with_body:
            self._hub.fetched.append(name)
        etag = hashlib.sha256(content).hexdigest()
        self._send(content, {"ETag": f'"{etag}"', "X-Repo-Commit": self._hub.commit}, with_body)

    def _send(self, content: bytes, headers: dict[str, str], with_body: bool) -> None:
        self.send_response(200)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Tests print nothing."""
