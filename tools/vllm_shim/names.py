"""`import vllm` for vLLM's HTTP tests: a table of the names that they use for the client's side.

Every other name below `vllm` stands for vLLM's own inside. It can be imported, so that the tests of
a file that need it do not take those with them that do not; whoever calls it is skipped with the
name as the reason.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import socket
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from octavo.compat.vllm.names import API_VERSION, MODULES
from octavo.version import version
from vllm_shim.models import tokenizer_folder

# module -> name -> where it is here; names of the public API are in octavo.compat.vllm
KNOWN: Mapping[str, Mapping[str, str]] = {
    "vllm.envs": {"VLLM_USE_RUST_FRONTEND": "vllm_shim.names:NO"},
    "vllm.version": {
        "__version__": "vllm_shim.names:VERSION",
        "_prev_minor_version": "vllm_shim.names:version_before",
    },
    "vllm.tokenizers": {"get_tokenizer": "vllm_shim.names:get_tokenizer"},
    "vllm.transformers_utils.repo_utils": {"hf_api": "vllm_shim.names:Hub"},
    "vllm.platforms": {"current_platform": "vllm_shim.names:PLATFORM"},
    "vllm.utils.network_utils": {"get_open_port": "vllm_shim.names:get_open_port"},
    "vllm.assets.audio": {"AudioAsset": "vllm_shim.names:AudioAsset"},
    "vllm.config": {"ModelConfig": "vllm_shim.names:ModelConfig"},
    "vllm.config.utils": {"getattr_iter": "vllm_shim.names:getattr_iter"},
    "vllm.utils.serial_utils": {
        "EMBED_DTYPES": "vllm_shim.answers:EMBED_DTYPES",
        "ENDIANNESS": "vllm_shim.answers:ENDIANNESS",
        "binary2tensor": "vllm_shim.answers:binary2tensor",
    },
    "vllm.entrypoints.pooling.embed.protocol": {
        "EmbeddingResponse": "vllm_shim.answers:EmbeddingResponse"
    },
    "vllm.entrypoints.openai.run_batch": {
        "BatchRequestOutput": "vllm_shim.answers:BatchRequestOutput"
    },
    "vllm.entrypoints.pooling.utils": {
        "MetadataItem": "vllm_shim.answers:MetadataItem",
        "build_metadata_items": "vllm_shim.answers:build_metadata_items",
        "decode_pooling_output": "vllm_shim.answers:decode_pooling_output",
    },
    "vllm.entrypoints.pooling.pooling.protocol": {
        "PoolingResponse": "vllm_shim.answers:PoolingResponse"
    },
    "vllm.entrypoints.pooling.classify.protocol": {
        "ClassificationResponse": "vllm_shim.answers:ClassificationResponse"
    },
    "vllm.entrypoints.pooling.scoring.protocol": {
        "ScoreResponse": "vllm_shim.answers:ScoreResponse",
        "RerankResponse": "vllm_shim.answers:RerankResponse",
    },
}


class Inside(type):
    """The kind of the names that stand for vLLM's inside: a test that uses one is skipped.

    What a file makes of one when it is imported is an inside as well.
    """

    tests_run = False  # the files are imported, `plugin.py` says

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        return _used(f"{cls.__doc__}()")

    def __add__(cls, other: object) -> Any:
        return _used(cls.__doc__ or "")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _used(f"{cls.__doc__}.{name}")


def _used(name: str) -> Any:
    if Inside.tests_run:
        pytest.skip(f"needs {name}, an inside of vLLM")
    return inside(name)


def inside(name: str) -> Inside:
    """A name that stands for an inside."""
    # An exception, so that it may stand in pytest.raises.
    return Inside(name.rpartition(".")[2], (Exception,), {"__doc__": name})


class Names(ModuleType):
    """One module below `vllm`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        known = {**MODULES.get(self.__name__, {}), **KNOWN.get(self.__name__, {})}
        if name in known:
            module, _, attribute = known[name].partition(":")
            return getattr(importlib.import_module(module), attribute or name)
        below = f"{self.__name__}.{name}"
        if any(f"{module}.".startswith(f"{below}.") for module in (*KNOWN, *MODULES)):
            return importlib.import_module(below)
        return inside(below)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `vllm` and every module below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != "vllm":
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Names(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: the names are found when they are asked for."""


def install() -> None:
    """From now on `vllm` is here."""
    sys.meta_path.insert(0, Finder())


class Hub:
    """No hub: what is fetched are adapters, which `remote_server.py` leaves out."""

    def snapshot_download(self, repo_id: str, **ignored: Any) -> str:
        return repo_id


class AudioAsset:
    """Sound, which is not served; bodies of requests have its address."""

    def __init__(self, name: str) -> None:
        self.url = f"http://127.0.0.1:9/{name}"


class Platform:
    """Where the server runs: on a CPU."""

    def device_count(self) -> int:
        return 0

    def supports_fp8(self) -> bool:
        return False

    def is_cpu(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("is_"):
            return lambda: False
        raise AttributeError(name)


NO = False
PLATFORM = Platform()
VERSION = version()


def version_before() -> str:
    """The minor version before ours in vLLM's count."""
    major, minor = API_VERSION.split(".")[:2]
    return f"{major}.{int(minor) - 1}"


def get_open_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def get_tokenizer(tokenizer_name: str, *arguments: Any, **keywords: Any) -> Any:
    """The tokenizer of the model that is served under this name, by transformers."""
    from transformers import AutoTokenizer  # seconds that few tests need

    return AutoTokenizer.from_pretrained(tokenizer_folder(tokenizer_name))


def getattr_iter(owner: object, names: Sequence[str], default: Any = None, **ignored: Any) -> Any:
    """The first of these attributes that there is."""
    return next((getattr(owner, name) for name in names if hasattr(owner, name)), default)


class ModelConfig:
    """As much of a model's facts as the tests ask for."""

    def __init__(self, model: str, **ignored: Any) -> None:
        self.model = model

    def get_vocab_size(self) -> int:
        return len(get_tokenizer(self.model))
