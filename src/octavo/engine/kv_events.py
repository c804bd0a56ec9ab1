"""Publisher of KV events over ZeroMQ, in vLLM's messages, so that its routers work unchanged.

Owns: sockets, sequence numbers, the batches kept for replay, the thread that sends.
Does not know: where events come from. Imports pyzmq only when a publisher is made.

    PUB      [topic, number, batch]      number: 8 bytes, big-endian, one more for each batch
    ROUTER   <- [number]                 (after an empty frame, as REQ sends it, or without one)
             -> [number, batch] ...      all batches kept from that number on
             -> [-1, b""]                the end; -1 in 8 bytes

`batch` is msgpack of `contracts.kv_events.KVEventBatch`. On the wire the pool's own medium is
"GPU", as in vLLM on any hardware, and hashes have the form that the configuration asks for.

A batch that was dropped, here or by ZeroMQ for a slow subscriber, is a gap in the numbers.
Source: vLLM's documentation of `--kv-events-config` and its example subscriber.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from octavo.config.kv_events import KVEventsConfig
from octavo.contracts.block_hash import BlockHash
from octavo.contracts.kv_events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    KVEventBatch,
)
from octavo.errors import ConfigError

logger = logging.getLogger(__name__)

_HashForm = Callable[[BlockHash], BlockHash | int]
AnyEvent = BlockStored | BlockRemoved | AllBlocksCleared
_END = (-1).to_bytes(8, "big", signed=True)
_POOL_MEDIUM = "GPU"
_LINGER_MS = 500  # after `close`, for subscribers that are still reading
_CLOSE_TIMEOUT_S = 3.0


class KVEventPublisher:
    """Sends events from a thread of its own; `publish` never waits."""

    def __init__(self, config: KVEventsConfig) -> None:
        """Open the sockets. Raises ConfigError without pyzmq, or for an endpoint that fails."""
        self._zmq = _import_zmq()
        self._topic = config.topic.encode()
        self._max_queued = config.max_queue_size
        self._hash_form = _HASH_FORMS[config.block_hash_form]
        self._encoder = msgspec.msgpack.Encoder()
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=config.buffer_steps)
        self._lock = threading.Lock()
        self._queue: deque[tuple[int, float, Sequence[AnyEvent]]] = deque()
        self._next_number = 0
        self._num_dropped = 0
        self._is_closed = False
        self._wake, self._woken = socket.socketpair()
        self._context = self._zmq.Context()
        try:
            self._open_sockets(config)
        except BaseException:
            self._context.destroy(linger=0)
            self._wake.close()
            self._woken.close()
            raise
        self._thread = threading.Thread(target=self._serve, name="octavo-kv-events", daemon=True)
        self._thread.start()

    @property
    def num_dropped(self) -> int:
        """Batches that were dropped because too many were waiting."""
        return self._num_dropped

    def publish(self, events: Sequence[AnyEvent]) -> None:
        """Hand over the events of one step, oldest first; they are ours from now on.

        Nothing is sent for no events, nor after `close`. If too many batches wait, the oldest goes.
        """
        if not events:
            return
        with self._lock:
            if self._is_closed:
                return
            if len(self._queue) >= self._max_queued:
                self._queue.popleft()
                self._num_dropped += 1
            is_first = not self._queue
            self._queue.append((self._next_number, time.time(), events))
            self._next_number += 1
        if is_first:
            self._wake_up()

    def close(self) -> None:
        """Send what waits, and give the endpoints back. May be called twice."""
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        if is_first:
            self._wake_up()
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._wake.close()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):  # the thread has ended, or has bytes enough to wake up
            self._wake.send(b"!", socket.MSG_DONTWAIT)

    def _open_sockets(self, config: KVEventsConfig) -> None:
        zmq = self._zmq
        self._publisher = self._context.socket(zmq.PUB)
        self._publisher.set_hwm(config.hwm)
        open_ = self._publisher.bind if config.listens else self._publisher.connect
        self.endpoint = self._opened("endpoint", config.endpoint, self._publisher, open_)
        self._replayer = None
        self.replay_endpoint = None
        if config.replay_endpoint is not None:
            self._replayer = self._context.socket(zmq.ROUTER)
            # A client may ask for all that is kept before it reads; what is beyond that is lost.
            self._replayer.sndhwm = config.buffer_steps + 1
            self.replay_endpoint = self._opened(
                "replay_endpoint", config.replay_endpoint, self._replayer, self._replayer.bind
            )
        what = "KV events, token ids of prompts included, go to"
        if config.listens:
            logger.info("%s whoever connects to %s", what, self.endpoint)
            return
        logger.info("%s the subscriber that listens at %s", what, self.endpoint)
        _warn_if_unknown(config.endpoint)

    def _opened(self, name: str, endpoint: str, socket_: Any, open_: Callable[[str], Any]) -> str:
        """Open a socket; the endpoint with its port where the user left that to the system."""
        socket_.ipv6 = "[" in endpoint  # ZeroMQ knows no such address otherwise
        try:
            open_(endpoint)
        except self._zmq.ZMQError as error:
            raise ConfigError(
                f"--kv-events-config: {name} {endpoint!r} cannot be opened: {error}. Name another "
                "one; with tcp://*:* the system chooses a free port"
            ) from error
        opened: bytes = socket_.getsockopt(self._zmq.LAST_ENDPOINT)
        return opened.rstrip(b"\0").decode()

    # ---- the sending thread

    def _serve(self) -> None:
        poller = self._zmq.Poller()
        poller.register(self._woken, self._zmq.POLLIN)
        if self._replayer is not None:
            poller.register(self._replayer, self._zmq.POLLIN)
        try:
            while self._send_queued():
                for ready, _ in poller.poll():
                    if ready is self._replayer:
                        self._send_queued()  # an answer has all that was published before
                        self._replay()
                    else:
                        self._woken.recv(4096)
        except Exception:  # border: nobody would hear of it
            logger.exception("KV events are not published any more")
            with self._lock:
                self._is_closed = True
                self._queue.clear()
        finally:
            self._context.destroy(linger=_LINGER_MS)
            self._woken.close()

    def _send_queued(self) -> bool:
        """Send all batches that wait; False after `close`."""
        with self._lock:
            batches, self._queue = self._queue, deque()
            is_closed = self._is_closed
        for number, time_s, events in batches:
            wired = [_on_the_wire(event, self._hash_form) for event in events]
            batch = self._encoder.encode(
                KVEventBatch(ts=time_s, events=wired, data_parallel_rank=0)
            )
            self._publisher.send_multipart((self._topic, number.to_bytes(8, "big"), batch))
            self._kept.append((number, batch))
        return not is_closed

    def _replay(self) -> None:
        """Answer one request for old batches; what is not one is ignored."""
        assert self._replayer is not None
        client, *delimiter, first = self._replayer.recv_multipart()
        if delimiter not in ([], [b""]) or len(first) != 8:
            logger.debug("a replay request is not 8 bytes: %r", first[:16])
            return
        wanted = int.from_bytes(first, "big")
        for number, batch in self._kept:
            if number >= wanted:
                answer = (client, *delimiter, number.to_bytes(8, "big"), batch)
                self._replayer.send_multipart(answer)
        self._replayer.send_multipart((client, *delimiter, _END, b""))


def _warn_if_unknown(endpoint: str) -> None:
    """ZeroMQ tries again for ever, in silence: the host may get its name later."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    try:
        socket.getaddrinfo(host.rpartition(";")[2].strip("[]"), port)
    except OSError as error:
        logger.warning(
            "--kv-events-config: the host of endpoint %r is not known: %s. Nothing is sent before "
            "it is; to listen here instead, name tcp://*:%s",
            endpoint,
            error.strerror or error,
            port,
        )


def open_publisher(config: KVEventsConfig) -> KVEventPublisher | None:
    """A publisher, if one is asked for. Raises ConfigError."""
    return KVEventPublisher(config) if config.is_on else None


def _import_zmq() -> Any:
    try:
        import zmq  # noqa: PLC0415  # optional
    except ModuleNotFoundError as error:
        raise ConfigError(
            "--kv-events-config needs pyzmq; install it with pip install 'octavo[events]'"
        ) from error
    return zmq


def _as_int(block_hash: BlockHash) -> int:
    return int.from_bytes(block_hash[-8:], "big")


def _as_it_is(block_hash: BlockHash) -> BlockHash:
    return block_hash


_HASH_FORMS: dict[str, _HashForm] = {"int": _as_int, "bytes": _as_it_is}


def _on_the_wire(event: AnyEvent, form: _HashForm) -> AnyEvent:
    """The event as vLLM's subscribers know it; its hashes may be no bytes any more."""
    if isinstance(event, AllBlocksCleared):
        return event
    changes: dict[str, Any] = {
        "block_hashes": [form(block_hash) for block_hash in event.block_hashes],
        "medium": event.medium or _POOL_MEDIUM,
    }
    if isinstance(event, BlockStored) and event.parent_block_hash is not None:
        changes["parent_block_hash"] = form(event.parent_block_hash)
    return msgspec.structs.replace(event, **changes)
