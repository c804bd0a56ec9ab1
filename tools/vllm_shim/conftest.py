"""What takes the place of vLLM's tests/conftest.py: names that tests import from it."""

from __future__ import annotations

from vllm_shim.names import inside

__all__ = ("HfRunner", "LocalAssetServer", "VllmRunner")
HfRunner = inside("tests.conftest.HfRunner")
LocalAssetServer = inside("tests.conftest.LocalAssetServer")
VllmRunner = inside("tests.conftest.VllmRunner")
