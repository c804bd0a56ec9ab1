"""Which name of vLLM's is what in Octavo, module by module, and what is missing and why.

The names are those that scripts import, of vLLM 0.28 and, where a module has moved, before it.
"""

from __future__ import annotations

from collections.abc import Mapping

API_VERSION = "0.28.0"  # of vLLM, whose names these are

_ENGINES = "octavo.compat.vllm.engines"
_ARGS = "octavo.compat.vllm.engine_args"
_STAND_INS = "octavo.compat.vllm.stand_ins"


def _all(home: str, names: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), home)


_INPUTS = _all("octavo.prompts", "PromptType TextPrompt TokensPrompt")
_POOLED = (
    "PoolingOutput PoolingRequestOutput EmbeddingOutput EmbeddingRequestOutput "
    "ClassificationOutput ClassificationRequestOutput ScoringOutput ScoringRequestOutput"
)
_OUTPUTS = _all("octavo.outputs", f"RequestOutput CompletionOutput {_POOLED}")
_PARSER = {"FlexibleArgumentParser": "octavo.config.cli_args:Parser"}
_LLM = {"LLM": _ENGINES}
_ASYNC = {"AsyncLLM": _ENGINES, "AsyncLLMEngine": f"{_ENGINES}:AsyncLLM"}
_ENGINE_ARGS = _all(_ARGS, "EngineArgs AsyncEngineArgs")

MODULES: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        **_LLM,
        "SamplingParams": "octavo.sampling_params",
        "PoolingParams": "octavo.pooling_params",
        **_ENGINE_ARGS,
        "LLMEngine": _ENGINES,
        "AsyncLLMEngine": f"{_ENGINES}:AsyncLLM",
        **_OUTPUTS,
        **_INPUTS,
        "__version__": _STAND_INS,
        "__version_tuple__": _STAND_INS,
    },
    "vllm.beam_search": _all("octavo.outputs", "BeamSearchOutput BeamSearchSequence"),
    "vllm.config": {},
    "vllm.distributed": {"cleanup_dist_env_and_memory": _STAND_INS},
    "vllm.engine": {},
    "vllm.engine.arg_utils": _ENGINE_ARGS,
    "vllm.engine.async_llm_engine": _ASYNC,
    "vllm.engine.llm_engine": {"LLMEngine": _ENGINES},
    "vllm.entrypoints": {},
    "vllm.entrypoints.llm": _LLM,
    "vllm.entrypoints.openai": {},
    "vllm.entrypoints.openai.api_server": {"main": "octavo.entrypoints.openai.api_server"},
    "vllm.inputs": _INPUTS,
    "vllm.inputs.data": _INPUTS,
    "vllm.logprobs": {"Logprob": "octavo.outputs"},
    "vllm.lora": {},
    "vllm.lora.request": {"LoRARequest": _STAND_INS},
    "vllm.outputs": {
        **_OUTPUTS,
        **_all("octavo.outputs", "BeamSearchOutput BeamSearchSequence"),
    },
    "vllm.pooling_params": {"PoolingParams": "octavo.pooling_params"},
    "vllm.sampling_params": _all(
        "octavo.sampling_params",
        "SamplingParams StructuredOutputsParams BeamSearchParams RequestOutputKind",
    ),
    "vllm.sequence": {"Logprob": "octavo.outputs"},
    "vllm.utils": _PARSER,
    "vllm.utils.argparse_utils": _PARSER,
    "vllm.v1": {},
    "vllm.v1.engine": {},
    "vllm.v1.engine.async_llm": {"AsyncLLM": _ENGINES},
    "vllm.v1.engine.llm_engine": {"LLMEngine": _ENGINES},
    "vllm.version": _all(_STAND_INS, "__version__ __version_tuple__"),
}
"""Module -> name -> where it is: a module, or module:name where it is called otherwise."""

_A_DICT = "give the keyword of LLM a dict"
MISSING: Mapping[str, str] = {
    "vllm.ModelRegistry": "see octavo.models.register, for models over the ops of Octavo",
    "vllm.initialize_ray_cluster": "there is one rank, and no cluster to join",
    "vllm.config.CompilationConfig": _A_DICT,
    "vllm.config.KVTransferConfig": "KV blocks are not sent to other engines",
    "vllm.config.PoolerConfig": _A_DICT,
    "vllm.config.StructuredOutputsConfig": _A_DICT,
    "vllm.config.VllmConfig": "see octavo.EngineConfig",
    "vllm.multimodal": "only text is served",
    "vllm.platforms": "octavo doctor tells what is seen of this machine",
    "vllm.plugins": "packages have the entry points octavo.models, octavo.logits_processors",
    "vllm.sampling_params.GuidedDecodingParams": "use StructuredOutputsParams",
    "vllm.v1.metrics": "a server has them at /metrics",
    "vllm.v1.sample": "for logits processors there is "
    "octavo.logits_processors.AdapterLogitsProcessor; see also logit_bias and bad_words",
}
"""What scripts import and Octavo has not -> why, or what to use."""

MISSING_CALLS: Mapping[str, str] = {
    "add_lora": "adapters are not supported",
    "apply_model": "a model is no torch module",
    "collective_rpc": "there is one rank",
    "do_log_stats": "a server logs them; see octavo.AsyncLLM.stats",
    "enqueue": "call generate",
    "enqueue_chat": "call chat",
    "get_metrics": "a server has them at /metrics; outputs have `metrics` with "
    "disable_log_stats=False",
    "get_supported_tasks": "a server tells them at /v1/capabilities",
    "list_loras": "adapters are not supported",
    "model_config": "see llm_engine.engine.config",
    "pause_generation": "abort the requests",
    "remove_lora": "adapters are not supported",
    "reset_mm_cache": "only text is served",
    "resume_generation": "abort the requests",
    "sleep": "the model stays loaded; end the process to free it",
    "start_profile": "octavo bench shows where a step's time goes",
    "stop_profile": "octavo bench shows where a step's time goes",
    "update_weights": "weights are never changed while they serve",
    "wait_for_completion": "call generate",
    "wake_up": "the model stays loaded",
}
"""Methods and attributes of vLLM's engines that Octavo's have not -> what to do."""


def is_known(module: str) -> bool:
    """Whether a module can be imported."""
    return module in MODULES


def notice(version: str) -> str:
    """What is printed once, when `vllm` is first imported."""
    lines = [f"octavo: import vllm is Octavo {version} here. Not there:"]
    return "\n  ".join([*lines, *(f"{name}: {why}" for name, why in MISSING.items())])


def missing(module: str, name: str) -> str:
    """What is said of a name that a module has not here."""
    full = f"{module}.{name}"
    reason = MISSING.get(full, "")
    have = sorted(
        [one for one in MODULES[module] if not one.startswith("_")]
        + [one.removeprefix(f"{module}.") for one in MODULES if _is_child(one, module)]
    )
    told = f": {reason}" if reason else ""
    return f"{full} is not in Octavo{told}. {module} has here: {', '.join(have) or 'nothing'}"


def _is_child(module: str, parent: str) -> bool:
    return module.rpartition(".")[0] == parent


def missing_call(kind: str, name: str) -> str:
    """What is said of an attribute that an engine has not."""
    reason = MISSING_CALLS.get(name)
    told = f"; {reason}" if reason else ""
    return f"{kind!r} object has no attribute {name!r}{told}"
