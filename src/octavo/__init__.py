"""Octavo: inference and serving of large language models.

    from octavo import LLM, SamplingParams

    llm = LLM("smollm2:135m")
    for output in llm.generate(["The capital of France is"], SamplingParams(temperature=0)):
        print(output.outputs[0].text)

Importing this package loads nothing; each public name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as in typing, whose import takes longer than the rest of this file

if TYPE_CHECKING:
    from typing import Any

    from octavo.config.engine import EngineConfig
    from octavo.engine.async_engine import AsyncLLM
    from octavo.errors import (
        ConfigError,
        DeadlineExceededError,
        EngineDeadError,
        InvalidRequestError,
        OctavoError,
        OverloadedError,
        RequestFailedError,
    )
    from octavo.llm import LLM
    from octavo.outputs import (
        BeamSearchOutput,
        BeamSearchSequence,
        ClassificationRequestOutput,
        CompletionOutput,
        EmbeddingRequestOutput,
        Logprob,
        PoolingRequestOutput,
        RequestMetrics,
        RequestOutput,
        ScoringRequestOutput,
    )
    from octavo.pooling_params import PoolingParams
    from octavo.prompts import PromptType, TextPrompt, TokensPrompt
    from octavo.sampling_params import (
        BeamSearchParams,
        RequestOutputKind,
        SamplingParams,
        StructuredOutputsParams,
    )

__version__: str

__all__ = [  # noqa: RUF022 - what most people want comes first
    "LLM",
    "SamplingParams",
    "RequestOutput",
    "CompletionOutput",
    "Logprob",
    "RequestMetrics",
    "RequestOutputKind",
    "StructuredOutputsParams",
    "BeamSearchParams",
    "BeamSearchOutput",
    "BeamSearchSequence",
    "PoolingParams",
    "PoolingRequestOutput",
    "EmbeddingRequestOutput",
    "ClassificationRequestOutput",
    "ScoringRequestOutput",
    "PromptType",
    "TextPrompt",
    "TokensPrompt",
    "AsyncLLM",
    "EngineConfig",
    "OctavoError",
    "InvalidRequestError",
    "ConfigError",
    "RequestFailedError",
    "DeadlineExceededError",
    "OverloadedError",
    "EngineDeadError",
    "__version__",
]

_HOMES = {
    "LLM": "octavo.llm",
    "SamplingParams": "octavo.sampling_params",
    "RequestOutput": "octavo.outputs",
    "CompletionOutput": "octavo.outputs",
    "Logprob": "octavo.outputs",
    "RequestMetrics": "octavo.outputs",
    "RequestOutputKind": "octavo.sampling_params",
    "StructuredOutputsParams": "octavo.sampling_params",
    "BeamSearchParams": "octavo.sampling_params",
    "BeamSearchOutput": "octavo.outputs",
    "BeamSearchSequence": "octavo.outputs",
    "PoolingParams": "octavo.pooling_params",
    "PoolingRequestOutput": "octavo.outputs",
    "EmbeddingRequestOutput": "octavo.outputs",
    "ClassificationRequestOutput": "octavo.outputs",
    "ScoringRequestOutput": "octavo.outputs",
    "PromptType": "octavo.prompts",
    "TextPrompt": "octavo.prompts",
    "TokensPrompt": "octavo.prompts",
    "AsyncLLM": "octavo.engine.async_engine",
    "EngineConfig": "octavo.config.engine",
    "OctavoError": "octavo.errors",
    "InvalidRequestError": "octavo.errors",
    "ConfigError": "octavo.errors",
    "RequestFailedError": "octavo.errors",
    "DeadlineExceededError": "octavo.errors",
    "OverloadedError": "octavo.errors",
    "EngineDeadError": "octavo.errors",
}


def __getattr__(name: str) -> Any:
    """Import a public name (PEP 562)."""
    if name == "__version__":
        value = import_module("octavo.version").version()
    elif name in _HOMES:
        with import_module("octavo.foundation.garbage").without_collections():
            value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'octavo' has no attribute {name!r}")
    globals()[name] = value  # the next look finds it at once
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
