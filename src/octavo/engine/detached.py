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
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from octavo.contracts.delta import FinishReason, TokenDelta
from octavo.contracts.progress import ReportProgress
from octavo.contracts.request import EngineRequest
from octavo.engine.build import Engine
from octavo.engine.core import EngineCore
from octavo.engine.health import Heartbeat
from octavo.errors import EngineDeadError, InvalidRequestError
from octavo.foundation.clock import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Command:
    """Something to do between two steps. Without a `reply`, its failure is the engine's end."""

    action: Callable[[EngineCore], Any]
    reply: Future[Any] | None = None


@dataclass(frozen=True, slots=True)
class EngineListener:
    """Whom the engine's thread calls."""

    progressed: Callable[[str, float], None]  # loading: phase, share between 0 and 1
    stepped: Callable[[list[TokenDelta]], None]  # a step finished
    died: Callable[[BaseException], None]  # the loop ended by a fault; no delta follows


class EngineThread:
    """Starts at once, loads, then serves until `stop`."""

    def __init__(
        self,
        build: Callable[[ReportProgress], Engine],
        listener: EngineListener,
        clock: Clock,
    ) -> None:
        self.loaded: Future[Engine] = Future()
        self.loaded.set_running_or_notify_cancel()  # one impatient waiter must not end it for all
        self.heartbeat = Heartbeat(clock)
        self._build = build
        self._listener = listener
        self._commands: SimpleQueue[Command | None] = SimpleQueue()  # None: stop
        self._lock = threading.Lock()  # between the last look into the queue and a late command
        self._is_stopping = False
        self._end: BaseException | None = None  # why no command is taken any more
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
        self._send(Command(partial(self._add, requests)))

    def add_if_few_wait(self, requests: Sequence[EngineRequest], max_waiting: int) -> Future[None]:
        """Queue all of them, or none: see `EngineCore.require_room`, whose errors the reply has."""
        return self.call(partial(self._add_if_few_wait, requests, max_waiting))

    def abort(self, request_ids: Sequence[str], reason: FinishReason) -> None:
        """End requests silently, before the next plan. Unknown and ended ones are skipped."""
        self._send(Command(partial(_abort, request_ids, reason)))

    def call(self, action: Callable[[EngineCore], T]) -> Future[T]:
        """Run `action` between two steps. Fails with EngineDeadError when the engine has ended."""
        reply: Future[T] = Future()
        self._send(Command(action, reply))
        return reply

    def request_stop(self) -> None:
        """End the thread after the step in flight, without waiting for that."""
        self._is_stopping = True
        self._commands.put(None)

    def stop(self) -> None:
        """End the thread after the step in flight or the next report of loading, and wait for that.

        May be called twice.
        """
        atexit.unregister(self.stop)
        self.request_stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _send(self, command: Command) -> None:
        with self._lock:
            if self._end is None:
                self._commands.put(command)
            elif command.reply is not None:
                command.reply.set_exception(self._end)

    def _run(self) -> None:
        try:
            engine = self._build(self._report)
        except BaseException as error:  # noqa: BLE001 - border: whoever waits for `loaded` gets it
            self._close_queue(error)
            self.loaded.set_exception(error)
            return
        self.loaded.set_result(engine)
        try:
            self._serve(engine.core)
            self._close_queue(EngineDeadError("the engine has been stopped"))
        except BaseException as error:  # border: the engine's main loop
            logger.critical("the engine has died", exc_info=error)
            self._close_queue(_as_death(error))
            self._listener.died(error)
        finally:
            engine.core.stop()

    def _report(self, phase: str, share: float) -> None:
        """Progress of loading; the place where it is given up when nobody wants the model."""
        if self._is_stopping:
            raise EngineDeadError("the engine was stopped while it was loading")
        self._listener.progressed(phase, share)

    def _serve(self, core: EngineCore) -> None:
        """Commands, then a step, until `stop`. Sleeps in the queue while there is nothing to do."""
        commands, heartbeat, listener = self._commands, self.heartbeat, self._listener
        while True:
            if core.has_work() and commands.empty():
                heartbeat.begin_step()
                deltas = core.step()
                heartbeat.end_step()
                if deltas:
                    listener.stepped(deltas)
                continue
            command = commands.get()
            if command is None:
                return
            _carry_out(command, core)

    def _add(self, requests: Sequence[EngineRequest], core: EngineCore) -> None:
        for request in requests:
            try:
                core.add_request(request)
            except InvalidRequestError as error:  # this request ends, its neighbours go on
                failed = TokenDelta(request.request_id, [], finish_reason="error", error=str(error))
                failed.is_unanswerable = True  # so that it is told as the caller's fault
                self._listener.stepped([failed])

    def _add_if_few_wait(
        self, requests: Sequence[EngineRequest], max_waiting: int, core: EngineCore
    ) -> None:
        core.require_room(requests, max_waiting)
        self._add(requests, core)

    def _close_queue(self, error: BaseException) -> None:
        """Take no further command, and fail the calls that nobody will answer."""
        with self._lock:
            self._end = error
        while not self._commands.empty():
            command = self._commands.get()
            reply = None if command is None else command.reply
            if reply is not None and reply.set_running_or_notify_cancel():
                reply.set_exception(error)


def _as_death(error: BaseException) -> EngineDeadError:
    """What calls fail with after the engine's loop has raised `error`."""
    if isinstance(error, EngineDeadError):
        return error
    death = EngineDeadError(f"the engine has died: {error}")
    death.__cause__ = error
    return death


def _carry_out(command: Command, core: EngineCore) -> None:
    if command.reply is None:
        command.action(core)
        return
    if not command.reply.set_running_or_notify_cancel():
        return  # nobody waits any more
    try:
        result = command.action(core)
    except Exception as error:  # noqa: BLE001 - border: the caller's to handle
        command.reply.set_exception(error)
    else:
        command.reply.set_result(result)


def _abort(request_ids: Sequence[str], reason: FinishReason, core: EngineCore) -> None:
    for request_id in request_ids:
        core.abort(request_id, reason=reason, silent=True)
