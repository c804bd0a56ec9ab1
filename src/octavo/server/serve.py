"""From a loading engine to a running server: requests are answered at once; signals; the end.

Owns: the event loop, draining.
SIGTERM refuses new requests and gives open answers `shutdown_timeout` seconds; a second SIGTERM,
and SIGINT, end at once. There are no child processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from octavo.config.engine import EngineConfig
from octavo.config.server import ServerConfig
from octavo.contracts.progress import ReportProgress
from octavo.engine.async_engine import AsyncLLM
from octavo.engine.build import Engine
from octavo.engine.loading import loaded
from octavo.foundation.registry import Registry
from octavo.server.batches.service import batches_at_work, open_store
from octavo.server.chat_format import check_chat_options
from octavo.server.keys import KeyRing
from octavo.server.listening import url_of
from octavo.server.protocol import bounded_protocol
from octavo.server.quotas import Quotas
from octavo.server.response_store import ResponseStore
from octavo.server.sqlite_thread import SqliteThread
from octavo.server.state import ServerState
from octavo.server.stats_log import log_statistics
from octavo.server.tls import Certificates, check_tls, tls_options
from octavo.server.usage_file import kept_usage
from octavo.server.warming import warm_when_idle

logger = logging.getLogger(__name__)
Announce = Callable[[Engine, str], None]
# All routes and what they need, imported while the engine loads.
APPS: Registry[Callable[..., Any]] = Registry(
    "application",
    {"whole": "octavo.server.app:build_app", "bare": "octavo.server.app:bare_app"},
)
ABORT_GRACE_S = 1.0  # for aborted answers to say so before their connections are closed


def serve(
    engine: AsyncLLM,
    engine_config: EngineConfig,
    server_config: ServerConfig,
    listener: socket.socket,
    *,
    announce: Announce,
    report: ReportProgress,
    every_s: float,
) -> None:
    """Serve until a signal ends it. The engine may still be loading; it ends with the server.

    `announce` is called once the model is ready; statistics are logged every so many seconds.
    Raises ConfigError for options, and whatever loading the model raises.
    """
    _silence_uvicorn()
    _run(_Server(engine, engine_config, server_config, listener, announce, report, every_s).run())


def _silence_uvicorn() -> None:
    """Its messages hold texts of exceptions, and a line for each malformed request."""
    theirs = logging.getLogger("uvicorn")
    theirs.addHandler(logging.NullHandler())
    theirs.propagate = False


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Server:
    """One server's life on its event loop."""

    def __init__(
        self,
        engine: AsyncLLM,
        engine_config: EngineConfig,
        config: ServerConfig,
        listener: socket.socket,
        announce: Announce,
        report: ReportProgress,
        every_s: float,
    ) -> None:
        self._engine = engine
        self._engine_config, self._config = engine_config, config
        self._listener, self._announce, self._report = listener, announce, report
        self._every_s = every_s
        self._signals: asyncio.Queue[int] = asyncio.Queue()
        self._batches = contextlib.AsyncExitStack()  # holds them at work

    async def run(self) -> None:
        """Open the door, load, serve, drain."""
        quotas = Quotas()
        async with (
            open_store(self._config.batch_store) as database,
            kept_usage(self._config.api_keys_file, quotas),
            self._batches,
        ):
            try:
                await self._run(database, quotas)
            finally:  # also where an option is refused
                await self._engine.shutdown(0)
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    asyncio.get_running_loop().remove_signal_handler(number)

    async def _run(self, database: SqliteThread | None, quotas: Quotas) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._signals.put_nowait, number)
        # What is wrong with the options is said before anything is loaded.
        check_chat_options(self._config)
        check_tls(self._config)
        keys = KeyRing(self._config)
        responses = ResponseStore.of(self._config)
        if self._config.response_store is not None:
            await responses.open()
        engine = self._engine
        state = ServerState(engine, self._engine_config.model.model, self._config, keys, responses)
        state.quotas = quotas
        uvicorn_config = self._uvicorn_config(state)
        http = _Uvicorn(uvicorn_config)
        renewing = self._renew(uvicorn_config, keys)
        serving = asyncio.ensure_future(http.serve(sockets=[self._listener]))
        ending = asyncio.ensure_future(self._wait_for_end(state))
        loading = asyncio.ensure_future(self._load(state, database))
        try:
            await asyncio.wait({ending, loading, serving}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()  # raises what went wrong
                await self._serve_until(ending, serving, engine)
        finally:
            for future in (loading, ending, renewing):
                future.cancel()
            await self._batches.aclose()
            await engine.shutdown(0)
            http.should_exit = True
            await asyncio.gather(serving, loading, ending, renewing, return_exceptions=True)
            await state.close_responses()

    def _renew(self, http: uvicorn.Config, keys: KeyRing) -> asyncio.Future[None]:
        """SIGHUP reads keys and certificates again. The task looks whether certificates changed."""
        certificates = Certificates(self._config, http)

        def read_again() -> None:
            keys.read_again()
            certificates.load()

        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, read_again)
        return asyncio.ensure_future(certificates.watch())

    async def _load(self, state: ServerState, database: SqliteThread | None) -> None:
        state.set_loaded(await loaded(state.engine, self._report))
        at_work = batches_at_work(state, APPS.load("bare")(state), database)
        await self._batches.enter_async_context(at_work)
        self._announce(state.loaded, url_of(self._config, self._listener))

    async def _serve_until(
        self, ending: asyncio.Future[None], serving: asyncio.Future[None], engine: AsyncLLM
    ) -> None:
        """Return when it is time to stop."""
        others: set[asyncio.Future[Any]] = {ending, serving}
        beside: list[asyncio.Future[None]] = []
        if not self._config.disable_log_stats:
            beside.append(asyncio.ensure_future(log_statistics(engine, self._every_s)))
        if (await engine.ready()).facts.pooling is None:
            beside.append(asyncio.ensure_future(warm_when_idle(engine)))
        try:
            await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for future in beside:
                future.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    async def _wait_for_end(self, state: ServerState) -> None:
        """The first SIGTERM drains; SIGINT or a second SIGTERM ends at once."""
        number = await self._signals.get()
        state.is_draining = True
        await self._batches.aclose()  # an answer that is cut off must not become a result
        if number == signal.SIGTERM and state.open_answers.count:
            logger.info(
                "shutting down: %d open answers get %g s; another signal ends them now",
                state.open_answers.count,
                self._config.shutdown_timeout,
            )
            await self._drain(state)
        else:
            logger.info("shutting down")
        self._end_at_next_signal()
        await state.engine.shutdown(0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(state.open_answers.wait_closed(), ABORT_GRACE_S)

    def _end_at_next_signal(self) -> None:
        """The engine ends after its step, or the next report of loading; a signal cuts that off."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, os._exit, 128 + number)

    async def _drain(self, state: ServerState) -> None:
        """Until the last answer is out, the time is up, or another signal comes."""
        done = asyncio.ensure_future(state.open_answers.wait_closed())
        again = asyncio.ensure_future(self._signals.get())
        waiting: set[asyncio.Future[Any]] = {done, again}
        await asyncio.wait(
            waiting, timeout=self._config.shutdown_timeout, return_when=asyncio.FIRST_COMPLETED
        )
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    def _uvicorn_config(self, state: ServerState) -> uvicorn.Config:
        return uvicorn.Config(
            APPS.load("whole")(
                state,
                is_traced=self._engine_config.observability.otlp_traces_endpoint is not None,
            ),
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=30,
            http=bounded_protocol(self._config.max_header_bytes),
            **tls_options(self._config),
        )


def _run(main: Any) -> None:
    """Run on uvloop where it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
