"""The value of --kv-events-config: JSON with vLLM's names and defaults, checked.

Owns names, ranges and defaults. Does not know sockets.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec

from octavo.config.json_option import typed_option

_FLAG = "--kv-events-config"
_OUR_SIDE = ("*", "0.0.0.0", "::", "ipc://")  # noqa: S104  # where an endpoint has one, we listen
_LARGEST_PORT = 65535


class KVEventsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether and where changes of the prefix cache are published.

    Whoever can connect reads the token ids of all prompts: there is no key. vLLM's default listens
    on every interface; name an address of a private network, or an `ipc://` path, where that is too
    wide.
    """

    enable_kv_cache_events: bool = False
    publisher: Literal["zmq", "null"] | None = None  # None: zmq if enabled
    # With `*`, `0.0.0.0` or `::`, and for ipc, we listen there; otherwise we connect to a listener.
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None  # we listen there in any case
    buffer_steps: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 10_000  # kept for replay
    hwm: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 100_000  # for a subscriber; 0: no bound
    max_queue_size: Annotated[int, msgspec.Meta(ge=1)] = 100_000  # batches that wait to be sent
    topic: str = ""
    # Not in vLLM's JSON: there a variable of the environment chooses, with the same default.
    # int: the last 8 bytes of the hash, big-endian. bytes: all 32.
    block_hash_form: Literal["int", "bytes"] = "int"

    def __post_init__(self) -> None:
        """Raises ValueError that names the field."""
        _check_endpoint("endpoint", self.endpoint, listens=self.listens)
        if self.replay_endpoint is not None:
            _check_endpoint("replay_endpoint", self.replay_endpoint, listens=True)

    @property
    def listens(self) -> bool:
        """Whether subscribers connect to us; else we connect to one that listens.

        The rule of vLLM: `*`, `0.0.0.0` or `::` anywhere in the endpoint, or ipc.
        """
        return any(mark in self.endpoint for mark in _OUR_SIDE)

    @property
    def is_on(self) -> bool:
        """Whether there is anything to publish, and a way to."""
        return self.enable_kv_cache_events and self.publisher != "null"


def parse_kv_events(text: str | None) -> KVEventsConfig:
    """The flag's value. Raises ConfigError naming the flag, the field and what would be right."""
    if text is None:
        return KVEventsConfig()
    return typed_option(_FLAG, text, KVEventsConfig, '{"enable_kv_cache_events": true}')


def _check_endpoint(name: str, endpoint: str, *, listens: bool) -> None:
    """ZeroMQ would take a port modulo 65536, and anything behind its digits."""
    example = "such as tcp://*:5557 or ipc:///tmp/kv-events"
    if endpoint.startswith("ipc://") and endpoint != "ipc://":
        return
    found = re.fullmatch(r"tcp://(.+):([^:\]]*)", endpoint)
    if found is None:
        raise ValueError(
            f"{name} must be tcp://HOST:PORT or ipc://PATH, {example}, got {endpoint!r}"
        )
    port = found[2]
    if listens and port == "*":
        return
    lowest = 0 if listens else 1
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_LARGEST_PORT))
    if not (is_number and lowest <= int(port) <= _LARGEST_PORT):
        free = ", or * for a free one" if listens else ""
        raise ValueError(
            f"{name}: the port must be a number from {lowest} to {_LARGEST_PORT}{free}, {example}, "
            f"got {endpoint!r}"
        )
