"""EngineThread: an engine core in a thread of its own.

Owns the thread, the order of commands and steps, and the end of both. Commands go in through a
thread-safe queue and run between two steps; deltas come out with one call per step. The core is
built, used and stopped in this thread only. Does not know asyncio, text or users.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Protocol, TypeAlias, TypeVar

from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.request import EngineRequest
from octavo.engine.build import Engine
from octavo.engine.core import EngineCore
from octavo.engine.health import Heartbeat
from octavo.errors import EngineDeadError, OctavoError
from octavo.executor.base import ReportProgress
from octavo.foundation.clock import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")
Command: TypeAlias = Callable[[EngineCore], None] | None  # None: stop


class EngineListener(Protocol):
    """Who hears from the engine. All calls come from the engine's thread."""

    def progressed(self, phase: str, share: float) -> None:
        """Loading went on; `share` is between 0 and 1."""

    def stepped(self, deltas: list[TokenDelta]) -> None:
        """A step finished."""

    def died(self, error: BaseException) -> None:
        """The loop ended by a fault; no delta follows."""


class EngineThread:
    """Starts at once, loads, then serves until `stop`."""

    def __init__(
        self,
        build: Callable[[ReportProgress], Engine],
        listener: EngineListener,
        clock: Clock,
    ) -> None:
        self.loaded: Future[Engine] = Future()
        self.heartbeat = Heartbeat(clock)
        self._build = build
        self._listener = listener
        self._commands: SimpleQueue[Command] = SimpleQueue()
        # A daemon, so that a forgotten engine cannot keep the interpreter alive; `stop` at exit
        # lets a step in flight finish before the interpreter goes away under it.
        self._thread = threading.Thread(target=self._run, name="octavo-engine", daemon=True)
        atexit.register(self.stop)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def add(self, requests: Sequence[EngineRequest]) -> None:
        """Queue requests for the next plan."""
        self._commands.put(partial(self._add, requests))

    def abort(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """End requests silently, before the next plan. Unknown and ended ones are skipped."""
        self._commands.put(partial(_abort, request_ids, reason))

    def call(self, action: Callable[[EngineCore], T]) -> Future[T]:
        """Run `action` between two steps. Fails with EngineDeadError once the engine has ended."""
        future: Future[T] = Future()
        self._commands.put(partial(_answer, action, future))
        if not self._thread.is_alive():
            self._drop_commands(EngineDeadError("the engine has been stopped"))
        return future

    def stop(self) -> None:
        """End the thread after the step in flight, and wait for that. May be called twice."""
        atexit.unregister(self.stop)
        self._commands.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            engine = self._build(self._listener.progressed)
        except BaseException as error:  # noqa: BLE001 - border: whoever waits for `loaded` raises it
            self.loaded.set_exception(error)
            self._drop_commands(error)
            return
        self.loaded.set_result(engine)
        try:
            self._serve(engine.core)
            self._drop_commands(EngineDeadError("the engine has been stopped"))
        except BaseException as error:  # border: the main loop
            logger.critical("the engine has died", exc_info=error)
            self._listener.died(error)
            self._drop_commands(error)
        finally:
            engine.core.stop()

    def _serve(self, core: EngineCore) -> None:
        """Commands, then a step, until `stop`. Sleeps in the queue while there is nothing to do."""
        commands, heartbeat, listener = self._commands, self.heartbeat, self._listener
        while True:
            try:
                command = commands.get(block=not core.has_work())
            except Empty:
                heartbeat.begin_step()
                deltas = core.step()
                heartbeat.end_step()
                if deltas:
                    listener.stepped(deltas)
                continue
            if command is None:
                return
            command(core)

    def _add(self, requests: Sequence[EngineRequest], core: EngineCore) -> None:
        for request in requests:
            try:
                core.add_request(request)
            except OctavoError as error:
                if isinstance(error, EngineDeadError):
                    raise
                refusal = TokenDelta(request.request_id, [], finish_reason="error", error=str(error))
                self._listener.stepped([refusal])

    def _drop_commands(self, error: BaseException) -> None:
        """Fail the calls that nobody will answer any more."""
        while True:
            try:
                command = self._commands.get_nowait()
            except Empty:
                return
            if isinstance(command, partial) and command.func is _answer:
                command.args[1].set_exception(error)


def _abort(request_ids: Sequence[str], reason: FinishReason, core: EngineCore) -> None:
    for request_id in request_ids:
        core.abort(request_id, reason=reason, silent=True)


def _answer(action: Callable[[EngineCore], T], future: Future[T], core: EngineCore) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(action(core))
    except BaseException as error:  # the caller's to handle
        future.set_exception(error)
        if isinstance(error, EngineDeadError):
            raise
