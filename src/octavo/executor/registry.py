"""What an executor is made of, imported when asked for.

Where a model can run: name of the back end -> class of its runner. The disk tier, which few have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from octavo.foundation.registry import Registry
from octavo.runner.base import Runner

RUNNERS: Registry[type[Runner]] = Registry(
    "backend",
    {
        "native": "octavo.runner.native_runner:NativeRunner",
        "torch": "octavo.backends.torch.runner:TorchRunner",
    },
)
# The same for models that transformers' code computes.
FOREIGN_RUNNERS: Registry[type[Runner]] = Registry(
    "backend of transformers' code",
    {"torch": "octavo.backends.torch.foreign.runner:TransformersRunner"},
)
TIER: Registry[Callable[..., Any]] = Registry(
    "part of the disk tier",
    {
        "check": "octavo.kvtier.folder:open_folder",
        "fingerprint": "octavo.kvtier.fingerprint:weights_fingerprint",
        "open": "octavo.kvtier.kv_files:KVFiles",
    },
)
