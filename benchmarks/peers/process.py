"""An engine in a process of its own: start, ask, pause, end.

Owns: the worker's pipes, the time from start to the first token, the signals. While one engine
works, the processes of all others are stopped, threads that spin included.
Does not know: which engine it is.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_END_TIMEOUT_S = 20.0


class WorkerError(Exception):
    """The engine failed; the message is its own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call of `ask` gave."""

    seconds: float  # measured in the worker
    token_ids: list[list[int]]


class Worker:
    """A running worker. `close` ends it, and every process that it started."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], cwd: Path, log: Path
    ) -> None:
        self._log = log
        with log.open("ab") as stream:
            self.start_s = time.perf_counter()
            self._process = subprocess.Popen(
                list(command),
                env=dict(environment),
                cwd=cwd,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                start_new_session=True,  # a process group of its own, to pause and end as one
            )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, prompts: Sequence[Sequence[int]], new_len: int) -> None:
        """Ask without waiting; a worker that still loads answers when it can."""
        assert self._process.stdin is not None
        text = json.dumps({"prompts": [list(ids) for ids in prompts], "new_len": new_len})
        try:
            self._process.stdin.write(text + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):  # the pipe is broken, or closed by us
            raise WorkerError(self._death()) from None

    def receive_about(self, timeout_s: float) -> dict[str, str]:
        """What the worker says of itself when it is ready. Raises WorkerError."""
        about: dict[str, str] = self._receive(timeout_s)["about"]
        return about

    def receive(self, timeout_s: float) -> Answer:
        """The next answer. Raises WorkerError."""
        found = self._receive(timeout_s)
        return Answer(float(found["seconds"]), found["token_ids"])

    def ask(self, prompts: Sequence[Sequence[int]], new_len: int, timeout_s: float) -> Answer:
        """`send` and `receive`."""
        self.send(prompts, new_len)
        return self.receive(timeout_s)

    def pause(self) -> None:
        """Stop the whole process group until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End it by closing its input; after a while by force."""
        self.resume()
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(_END_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self._signal(signal.SIGKILL)  # children that outlive their parent too
        self._process.wait()
        self._reader.join(_END_TIMEOUT_S)

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty:
            raise WorkerError(f"no answer within {timeout_s:.0f} s") from None
        if not line:
            raise WorkerError(self._death())
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise WorkerError(str(found["error"]))
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _death(self) -> str:
        code = self._process.wait()
        tail = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"the worker ended with code {code}: {tail[-1][:300] if tail else 'no message'}"
