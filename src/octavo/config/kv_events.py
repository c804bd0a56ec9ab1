"""The value of --kv-events-config: JSON with vLLM's names and defaults, checked.

Owns names, ranges and defaults. Does not know sockets.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from octavo.config.json_option import typed_option

_FLAG = "--kv-events-config"


class KVEventsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether and where changes of the prefix cache are published.

    Whoever can connect reads the token ids of all prompts: there is no key. vLLM's default listens
    on every interface; name an address of a private network, or an `ipc://` path, where that is too
    wide.
    """

    enable_kv_cache_events: bool = False
    publisher: Literal["zmq", "null"] | None = None  # None: zmq if enabled
    # With `*`, `0.0.0.0` or `::`, and for ipc, we listen there; otherwise we connect to a listener.
    endpoint: Annotated[str, msgspec.Meta(pattern=r"^(tcp|ipc)://.+")] = "tcp://*:5557"
    replay_endpoint: Annotated[str, msgspec.Meta(pattern=r"^(tcp|ipc)://.+")] | None = None
    buffer_steps: Annotated[int, msgspec.Meta(ge=0, le=10_000_000)] = 10_000  # kept for replay
    hwm: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 100_000  # for a subscriber; 0: no bound
    max_queue_size: Annotated[int, msgspec.Meta(ge=1)] = 100_000  # batches that wait to be sent
    topic: str = ""
    # Not in vLLM's JSON: there a variable of the environment chooses, with the same default.
    # int: the last 8 bytes of the hash, big-endian. bytes: all 32.
    block_hash_form: Literal["int", "bytes"] = "int"

    @property
    def is_on(self) -> bool:
        """Whether there is anything to publish, and a way to."""
        return self.enable_kv_cache_events and self.publisher != "null"


def parse_kv_events(text: str | None) -> KVEventsConfig:
    """The flag's value. Raises ConfigError naming the flag, the field and what would be right."""
    if text is None:
        return KVEventsConfig()
    return typed_option(_FLAG, text, KVEventsConfig, '{"enable_kv_cache_events": true}')
