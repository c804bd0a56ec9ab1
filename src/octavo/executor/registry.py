"""Where a model can run: name of the back end -> class of its runner, imported when asked for."""

from __future__ import annotations

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
