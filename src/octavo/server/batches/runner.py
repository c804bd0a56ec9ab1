"""Computes open batches beside live traffic: which line is next, when, and what becomes of it.

Owns the tasks of all batches. A line goes through the same route as a request from outside. It
begins only while it need not wait in the engine, for rows or for blocks; a few lines run at a time.
After a restart what has a result keeps it, and the rest is computed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus

import msgspec
from starlette.types import ASGIApp

from octavo.errors import EngineDeadError, OverloadedError
from octavo.server.batches.batch_store import BatchRecord, BatchStore, StoredLine
from octavo.server.batches.file_store import FileStore
from octavo.server.batches.inside import post_inside
from octavo.server.batches.lines import LineRequest, answered, read_line, unanswered
from octavo.server.batches.validation import LineLimits, validate
from octavo.server.errors import log_fault
from octavo.server.queue_bound import waits_outside
from octavo.server.state import ServerState

logger = logging.getLogger(__name__)
MAX_ACTIVE = 32  # batches that have a task; others wait for their end
MAX_ACTIVE_OF_ONE = 4  # of one tenant
LOOK_EVERY_S = 60.0
LONGEST_PAUSE_S = 60.0
LOWEST_PRIORITY = 2**31 - 1
_LINES_AT_ONCE = 64
# Full, loading or ending: the line is tried again.
_PASSING = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE})
_EXPIRED = "the completion window ended before this request was made"


class BatchRunner:
    """Give it to a task: `run` goes on until that is cancelled. Lines that run then are dropped."""

    def __init__(
        self,
        state: ServerState,
        app: ASGIApp,
        files: FileStore,
        batches: BatchStore,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`app` has the routes, without keys and limits; `wall_s` the seconds since the epoch."""
        self._wall_s = wall_s
        self._state, self._app = state, app
        self._files, self._batches = files, batches
        config = state.config
        self._slots = asyncio.Semaphore(config.batch_concurrency)
        self._limits = LineLimits(config.max_batch_requests, config.max_body_bytes)
        self._active: dict[str, asyncio.Task[None]] = {}
        self._owners: dict[str, str] = {}  # tenant of each active batch
        self._faulty: dict[str, float] = {}  # when a fault of ours ended a batch's task
        self._news = asyncio.Event()

    def wake(self) -> None:
        """A batch was made."""
        self._news.set()

    def drop(self, batch_id: str) -> None:
        """A batch was marked as cancelling: nothing of it is computed any more."""
        task = self._active.get(batch_id)
        if task is not None:
            task.cancel()
        self._news.set()

    async def run(self) -> None:
        """Compute batches for ever."""
        try:
            while True:
                self._news.clear()
                await self._look()
                news = asyncio.ensure_future(self._news.wait())
                try:
                    await asyncio.wait(
                        {news, *self._active.values()},
                        timeout=LOOK_EVERY_S,
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    news.cancel()
        finally:
            for task in self._active.values():
                task.cancel()
            await asyncio.gather(*self._active.values(), return_exceptions=True)

    async def _look(self) -> None:
        """Forget tasks that have ended, and begin others."""
        for batch_id in [one for one, task in self._active.items() if task.done()]:
            task = self._active.pop(batch_id)
            del self._owners[batch_id]
            fault = None if task.cancelled() else task.exception()
            if fault is not None:
                self._faulty[batch_id] = time.monotonic()
                log_fault(fault)
        if self._state.engine.errored:
            return  # nothing can be computed until a restart
        try:
            await self._files.remove_leftovers(int(self._wall_s()))
            found = await self._batches.open_batches()
        except OverloadedError as error:
            logger.error("batches wait: %s", error)
            return
        active = Counter(self._owners.values())
        for record in found:
            is_new = record.id not in self._active and not self._rests(record.id)
            if is_new and len(self._active) < MAX_ACTIVE:
                if active[record.tenant] >= MAX_ACTIVE_OF_ONE:
                    continue
                active[record.tenant] += 1
                self._owners[record.id] = record.tenant
                self._active[record.id] = asyncio.ensure_future(self._work(record))

    def _rests(self, batch_id: str) -> bool:
        """Whether a fault has ended the batch's task lately: it must not come back at once."""
        since_s = time.monotonic() - self._faulty.get(batch_id, float("-inf"))
        if since_s >= LOOK_EVERY_S:
            self._faulty.pop(batch_id, None)
        return since_s < LOOK_EVERY_S

    async def _work(self, record: BatchRecord) -> None:
        """One batch from where it stands to its end."""
        try:
            async with asyncio.timeout(record.expires_at - self._wall_s()):
                if record.status == "validating":
                    record = await self._validated(record)
                if record.status == "in_progress":
                    await self._compute(record)
        except TimeoutError:

            def expired(custom_id: str) -> bytes:
                return unanswered(custom_id, "batch_expired", _EXPIRED)

            await self._batches.fail_pending(record.id, expired)
            await self._batches.end(record.id, "expired", int(self._wall_s()))
            return
        if record.status == "cancelling":
            await self._batches.end(record.id, "cancelled", int(self._wall_s()))
        elif record.status != "failed":
            await self._batches.end(record.id, "completed", int(self._wall_s()))

    async def _validated(self, record: BatchRecord) -> BatchRecord:
        """The batch in progress, or failed."""
        faults = await validate(
            self._files,
            self._batches,
            batch_id=record.id,
            file_id=record.input_file_id,
            endpoint=record.endpoint,
            limits=self._limits,
        )
        if faults:
            await self._batches.fail(record.id, faults, int(self._wall_s()))
            return msgspec.structs.replace(record, status="failed")
        return await self._batches.begin(record.id, int(self._wall_s()))

    async def _compute(self, record: BatchRecord) -> None:
        """Every line that has no result yet."""
        after = -1
        async with asyncio.TaskGroup() as running:
            while lines := await self._batches.pending(record.id, after, _LINES_AT_ONCE):
                for line in lines:
                    await self._slots.acquire()  # first come, first served: batches take turns
                    task = running.create_task(self._line(record, line))
                    task.add_done_callback(lambda _: self._slots.release())
                after = lines[-1].number

    async def _line(self, record: BatchRecord, stored: StoredLine) -> None:
        """One line: computed, and its result kept."""
        data = await self._files.read(record.input_file_id, stored.first_byte, stored.num_bytes)
        line = read_line(data)  # was checked when the batch began
        body = msgspec.json.encode(self._lowest_priority(line))
        while True:
            await self._may_run(record.tenant)
            with waits_outside():
                reply = await post_inside(self._app, line.url, body, record.tenant)
            if reply.status not in _PASSING:
                break
            if self._state.engine.errored:
                raise EngineDeadError("the engine has ended; batches go on after a restart")
            pause_s = min(reply.retry_after_s, LONGEST_PAUSE_S)
            if reply.status == HTTPStatus.TOO_MANY_REQUESTS:
                await self._state.wait_for_end(pause_s)
            else:
                await asyncio.sleep(pause_s)
        result = answered(line.custom_id, reply.status, reply.body)
        await self._keep(record.id, stored.number, result, is_success=reply.status < 400)

    async def _keep(self, batch_id: str, number: int, result: bytes, *, is_success: bool) -> None:
        """Keep a result; a disk that is full for a while costs no work."""
        while True:
            try:
                await self._batches.keep_result(batch_id, number, result, is_success=is_success)
            except OverloadedError as error:
                logger.error("a result of a batch waits: %s", error)
                await asyncio.sleep(LONGEST_PAUSE_S)
            else:
                return

    async def _may_run(self, tenant: str) -> None:
        """Wait for a free row, and for what the tenant's key allows."""
        state = self._state
        while True:
            await state.keys.refresh()
            record = state.keys.record(tenant)
            if state.keys.is_revoked(tenant):
                wait_s = LONGEST_PAUSE_S
            else:
                wait_s = 0.0 if record is None else state.quotas.budget_wait_s(record)
            if wait_s == 0.0:
                await state.wait_for_row()
                return
            await asyncio.sleep(min(wait_s, LONGEST_PAUSE_S))

    def _lowest_priority(self, line: LineRequest) -> dict[str, object]:
        """The body, behind all live requests where the engine goes by priority."""
        if self._state.loaded.config.scheduler.scheduling_policy != "priority":
            return line.body
        if line.url not in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings"):
            return line.body  # no other body has the field
        return line.body | {"priority": LOWEST_PRIORITY}
