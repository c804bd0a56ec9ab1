"""A real `octavo serve` process on a free port of the loopback, ended by its own pid."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

SERVE = (sys.executable, "-m", "octavo", "serve")
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 15.0
READY = re.compile(r"ready at (https?://\S+|unix:\S+)")


class ServerProcess:
    """One server; its log is read by a thread, so that it never blocks on a full pipe."""

    def __init__(
        self,
        arguments: list[str],
        environment: dict[str, str] | None = None,
        command: Sequence[str] = SERVE,
    ) -> None:
        self.process = subprocess.Popen(
            [*command, "--port", "0", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.url = ""
        self._lines: list[str] = []
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True)
        self._reader.start()

    @property
    def log(self) -> str:
        """What it has written so far."""
        return "".join(self._lines)

    def wait_ready(self) -> str:
        """The URL, once the model is loaded."""
        assert self._is_ready.wait(START_TIMEOUT_S), self.log
        assert self.url, self.log
        return self.url

    def wait_end(self) -> int:
        """The exit code of a process that ends by itself."""
        code = self.process.wait(STOP_TIMEOUT_S)
        self._reader.join(STOP_TIMEOUT_S)
        return code

    def stop(self) -> None:
        """SIGINT, then SIGKILL if that does not end it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        self._reader.join(STOP_TIMEOUT_S)

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._lines.append(line)
                found = READY.search(line)
                if found is not None:
                    self.url = found[1]
                    self._is_ready.set()
        self._is_ready.set()  # the process has ended; whoever waits looks at the log


@contextmanager
def serving(
    *arguments: str,
    environment: dict[str, str] | None = None,
    command: Sequence[str] = SERVE,
) -> Iterator[ServerProcess]:
    """A server that is ready."""
    server = ServerProcess(list(arguments), environment, command)
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


@contextmanager
def socket_path() -> Iterator[Path]:
    """A path short enough for a Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "s"
