"""Small names of vLLM's that stand for nothing in Octavo, or for something that it refuses."""

from __future__ import annotations

import gc
from typing import Any

from octavo.compat.vllm.names import API_VERSION
from octavo.errors import InvalidRequestError
from octavo.version import version

__version__ = f"{API_VERSION}+octavo.{version().replace('+', '.')}"
"""vLLM's version whose names are followed; scripts compare it. Octavo's own is behind the plus."""
__version_tuple__ = tuple(int(part) for part in API_VERSION.split("."))


class LoRARequest:
    """Adapters are not supported; making one says so, before the base model answers in its place.

    Raises InvalidRequestError.
    """

    def __init__(self, lora_name: str, *_: Any, **__: Any) -> None:
        raise InvalidRequestError(
            f"the adapter {lora_name[:60]!r} cannot be used: adapters are not supported; merge it "
            "into the model's weights",
            param="lora_request",
        )


def cleanup_dist_env_and_memory(shutdown_ray: bool = False) -> None:
    """What examples call at their end: nothing is distributed; garbage is collected."""
    del shutdown_ray  # there is none
    gc.collect()
