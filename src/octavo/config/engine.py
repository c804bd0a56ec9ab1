"""Options of one engine, grouped by who uses them. Names and meanings are vLLM's where it has them.

A value of None means "decide for me": whoever needs the value decides (`runner/memory_plan.py` the
context, the runner its threads).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from octavo.config.field import check_options, flag_name, option
from octavo.config.json_option import generation_override
from octavo.config.kv_events import parse_kv_events
from octavo.config.speculative import parse_speculative
from octavo.errors import ConfigError

LARGEST_COUNT = 2**31 - 1  # of what kernels count in 32 bits, and beyond any disk in GB
AUTO_LENGTH = -1  # `max_model_len` as a number for "auto": the largest that fits
ACTIVATION_DTYPES = ("auto", "float32", "bfloat16", "int8")
KV_DTYPES = (
    *("auto", "bfloat16", "float16", "float32", "int8", "fp8", "fp8_e4m3", "fp8_e5m2", "int4"),
    *("int8_per_token_head", "int4_per_token_head"),  # vLLM's names of int8 and int4
)
WEIGHT_DTYPES = ("auto", "float32", "bfloat16", "float16")
DTYPE_NAMES = {"half": "float16", "float": "float32"}  # further names of them, as in vLLM
# Methods of checkpoints, and what floats can become while they are loaded.
CHECKPOINT_QUANTISATIONS = (
    *("awq", "bitsandbytes", "compressed-tensors", "fp8", "gguf", "gptq", "modelopt", "mxfp4"),
)
ONLINE_QUANTISATIONS = ("int8", "int4", "fp8")
QUANTISATION_ALIASES = {  # of vLLM
    "auto_awq": "awq",
    "auto_gptq": "gptq",
    "awq_marlin": "awq",
    "fp8_per_channel": "fp8",
    "gptq_marlin": "gptq",
    "modelopt_fp4": "modelopt",
}
QUANTISATIONS = (
    *("auto", *ONLINE_QUANTISATIONS),
    *(name for name in CHECKPOINT_QUANTISATIONS if name != "fp8"),
    *QUANTISATION_ALIASES,
)
POLICIES = ("fcfs", "priority", "fair")
PREEMPTION_MODES = ("recompute", "swap", "auto")
BACKENDS = ("native", "torch")
MODEL_IMPLS = ("auto", "octavo", "transformers", "vllm")
RUNNERS = ("auto", "generate", "pooling")
TRACE_DETAILS = ("model", "worker", "all")
CONVERSIONS = ("auto", "none", "embed", "classify")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model, and how to hold it."""

    model: str = option("smollm2:135m", "Short name, hub id, local folder or .gguf file.")
    tokenizer: str | None = option(None, "Folder or hub id of another tokenizer.")
    revision: str | None = option(None, "Branch, tag or commit of a hub model.")
    dtype: str = option(
        "auto",
        "Type of unquantised weights in memory; auto keeps the checkpoint's own.",
        choices=WEIGHT_DTYPES,
    )
    quantization: str = option(
        "auto",
        "auto: as the checkpoint is; int8, int4 or fp8: round the layers' matrices of a checkpoint "
        "of floats while it is loaded; another name must be the checkpoint's own.",
        choices=QUANTISATIONS,
    )
    activation_dtype: str = option(
        "auto",
        "Type of activations in matrix products; auto is int8 where weights are quantised, and "
        "float32 elsewhere and on torch. bfloat16: rounded so where weights are BF16, as vLLM "
        "computes a bfloat16 model.",
        choices=ACTIVATION_DTYPES,
    )
    max_model_len: int | None = option(
        None,
        "Longest sequence, prompt and answer together; auto takes the largest that fits.",
        at_least=-1,
        at_most=LARGEST_COUNT,
        metavar="TOKENS|auto",
    )
    seed: int = option(0, "Seed of requests that bring none.", at_least=-(2**63), at_most=2**64 - 1)
    generation_config: str = option(
        "auto", "auto: defaults from the model's generation_config.json; octavo or vllm: none."
    )
    override_generation_config: str | None = option(
        None,
        'JSON of defaults that replace those of generation_config.json, such as {"temperature": '
        "0.5}; the others, and the end tokens, stay.",
        is_json=True,
    )
    max_logprobs: int = option(20, "Most logprobs per position; -1 for no cap.", at_least=-1)
    runner: str = option(
        "auto",
        "generate: text; pooling: embeddings or scores; auto: what the model was made for.",
        choices=RUNNERS,
    )
    convert: str = option(
        "auto",
        "With --runner pooling, what a language model becomes: embed, or classify where it has a "
        "head for it.",
        choices=CONVERSIONS,
    )
    pooler_config: str | None = option(
        None,
        'JSON as in vLLM: how vectors are made, such as {"pooling_type": "MEAN", "use_activation": '
        "false}.",
        is_json=True,
    )
    hf_overrides: str | None = option(
        None,
        'JSON of keys that replace those of config.json, such as {"is_matryoshka": true}.',
        is_json=True,
    )
    logits_processors: tuple[str | type[Any], ...] = option(
        (), "Classes that may change logits before a token is drawn, as module:Class."
    )
    model_impl: str = option(
        "auto",
        "Whose code computes the model: octavo or vllm: Octavo's; transformers: that of Hugging "
        "Face, on --backend torch; auto: Octavo's, and on torch the other for what Octavo lacks.",
        choices=MODEL_IMPLS,
    )
    trust_remote_code: bool = option(
        False,
        "Run Python code that a model's folder brings, where transformers' code needs it. It may "
        "do all that this process may.",
    )
    backend: str = option("native", "Where the model runs.", choices=BACKENDS)
    threads: int | None = option(
        None, "Compute threads; default: the cores this process may use.", at_least=1, at_most=1024
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DTYPE_NAMES.get(self.dtype, self.dtype))
        check_options(self)
        if self.model_impl == "vllm":
            object.__setattr__(self, "model_impl", "octavo")
        if self.model_impl == "transformers" and self.backend != "torch":
            raise ConfigError("--model-impl transformers needs --backend torch")
        generation_override(self.override_generation_config)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig:
    """The KV cache."""

    block_size: int = option(
        32, "Tokens in a KV block, a multiple of 8.", at_least=8, at_most=256, multiple_of=8
    )
    kv_cache_dtype: str = option(
        "auto",
        "Type of stored keys and values; auto is bfloat16, fp8 is fp8_e4m3.",
        choices=KV_DTYPES,
    )
    calculate_kv_scales: bool = option(
        False,
        "As in vLLM: find the scales of stored keys and values from data. int8 and int4 always do; "
        "fp8 cannot.",
    )
    gpu_memory_utilization: float = option(
        0.5,
        "Share of the machine's or container's memory that this process may use, on any device.",
        at_least=0.01,
        at_most=1,
    )
    kv_cache_memory_bytes: int | None = option(
        None, "Exact size of the KV pool; overrides the share.", at_least=1
    )
    num_gpu_blocks_override: int | None = option(
        None, "Exact number of KV blocks; overrides both, for tests.", at_least=1
    )
    enable_prefix_caching: bool = option(True, "Reuse the KV blocks of equal prompt beginnings.")
    swap_space: float = option(
        0.0,
        "GiB of host memory for the KV blocks of preempted requests.",
        at_least=0,
        at_most=LARGEST_COUNT,
    )
    swap_dir: str | None = option(
        None, "Folder for a file that holds the swap space, instead of memory."
    )
    kv_offload_dir: str | None = option(
        None, "Folder that keeps evicted KV blocks, also for the next start; default: none."
    )
    kv_offload_gb: float | None = option(
        None,
        "Most GB of files in that folder. Default: 10.",
        at_least=0.001,
        at_most=LARGEST_COUNT,
    )
    kv_events_config: str | None = option(
        None,
        "JSON as in vLLM: where to publish changes of the prefix cache, such as "
        '{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557"}. That '
        "endpoint, the default, shows token ids of prompts to every machine that can connect; one "
        "without *, 0.0.0.0 or :: is a subscriber's, who listens there.",
        is_json=True,
    )

    def __post_init__(self) -> None:
        check_options(self)
        parse_kv_events(self.kv_events_config)
        if self.swap_dir is not None and not self.swap_space:
            raise ConfigError("--swap-dir needs --swap-space: how many GiB its file may hold")
        for name in ("swap_dir", "kv_offload_dir"):
            if getattr(self, name) == "":
                raise ConfigError(f"{flag_name(name)} must name a folder, got an empty text")
        if self.kv_offload_gb is not None and self.kv_offload_dir is None:
            raise ConfigError("--kv-offload-gb needs --kv-offload-dir: the folder that it bounds")
        if self.kv_offload_dir is not None and not self.enable_prefix_caching:
            raise ConfigError(
                "--kv-offload-dir keeps blocks of the prefix cache; leave it out or leave "
                "--no-enable-prefix-caching out"
            )
        if self.calculate_kv_scales and self.kv_cache_dtype.startswith("fp8"):
            raise ConfigError(
                f"--calculate-kv-scales does not go with --kv-cache-dtype {self.kv_cache_dtype}: "
                "scales from the first batch would make answers depend on it; use "
                "--kv-cache-dtype int8, which has a scale for each token and head"
            )

    @property
    def max_offload_bytes(self) -> int:
        """`--kv-offload-gb` in bytes."""
        gigabytes = 10.0 if self.kv_offload_gb is None else self.kv_offload_gb
        return int(gigabytes * 1e9)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits of one step."""

    max_num_batched_tokens: int = option(
        512, "Tokens that one step may compute.", at_least=1, at_most=LARGEST_COUNT
    )
    max_num_seqs: int = option(
        64, "Requests that may run at the same time.", at_least=1, at_most=65536
    )
    scheduling_policy: str = option("fcfs", "Order of waiting requests.", choices=POLICIES)
    enable_chunked_prefill: bool = option(True, "Cut long prompts into the token budget.")
    preemption_mode: str = option(
        "auto",
        "What a preempted request does: compute again, move its blocks to --swap-space, or auto: "
        "whichever is cheaper as measured, where there is swap space.",
        choices=PREEMPTION_MODES,
    )
    priority_preemption: bool = option(
        True, "Under the priority policy an arriving request may displace a worse one at once."
    )
    long_prefill_token_threshold: int = option(
        0, "Most tokens of one prompt that a step computes; 0: the engine decides.", at_least=0
    )
    max_num_partial_prefills: int | None = option(
        None, "Most prompts that are half computed at once; default: no bound.", at_least=1
    )
    max_decode_slowdown: float = option(
        1.4,
        "How much longer than a step of decoding alone a step may take when prompts are computed "
        "beside it, by measured speed; 0: no bound.",
        at_least=0,
    )
    speculative_config: str | None = option(
        None,
        "JSON as in vLLM: guess the next tokens from what followed the last ones before, and check "
        'the guesses in one step, such as {"method": "ngram", "num_speculative_tokens": 4, '
        '"prompt_lookup_max": 4, "prompt_lookup_min": 2}. Answers do not change.',
        is_json=True,
    )

    stream_interval: int = option(
        1,
        "Tokens in a chunk of a stream. The first token is sent at once, and so is the end.",
        at_least=1,
    )

    def __post_init__(self) -> None:
        check_options(self)
        parse_speculative(self.speculative_config)
        if self.scheduling_policy != "priority" and not self.priority_preemption:
            raise ConfigError(
                "--no-priority-preemption has a meaning under --scheduling-policy priority alone, "
                f"which is {self.scheduling_policy}; leave it out"
            )
        if not self.enable_chunked_prefill and (self.max_num_partial_prefills or 1) > 1:
            raise ConfigError(
                f"--max-num-partial-prefills {self.max_num_partial_prefills} needs chunked "
                "prefill: without it no prompt is half computed; leave it or "
                "--no-enable-chunked-prefill out"
            )
        if 0 < self.max_decode_slowdown < 1:
            raise ConfigError(
                "--max-decode-slowdown must be 0 or at least 1: a step with prompts takes no less "
                f"than one without, got {self.max_decode_slowdown}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservabilityConfig:
    """Traces of requests."""

    otlp_traces_endpoint: str | None = option(
        None,
        "Address of an OpenTelemetry collector that takes OTLP over HTTP, such as "
        "http://localhost:4318/v1/traces; needs pip install 'octavo[otel]'. Default: no traces.",
    )
    collect_detailed_traces: tuple[str, ...] = option(
        (),
        "Times of steps in the traces: model for forward passes, worker for all that the runner "
        "does, all for both.",
    )

    def __post_init__(self) -> None:
        check_options(self)
        endpoint, flag = self.otlp_traces_endpoint, flag_name("otlp_traces_endpoint")
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ConfigError(
                f"{flag} must be an http or https address, such as "
                f"http://localhost:4318/v1/traces, got {endpoint!r}; traces are sent by OTLP over "
                "HTTP, not by gRPC"
            )
        details = tuple(name for text in self.collect_detailed_traces for name in text.split(","))
        for name in details:
            if name not in TRACE_DETAILS:
                known = ", ".join(TRACE_DETAILS)
                raise ConfigError(f"--collect-detailed-traces takes {known}, got {name!r}")
        if details and endpoint is None:
            raise ConfigError(f"--collect-detailed-traces needs {flag}: where traces are sent")
        object.__setattr__(self, "collect_detailed_traces", details)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The root, for those who build an engine and for runners, which need most parts.

    Whoever needs one part takes that part.
    """

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    observability: ObservabilityConfig = field(default_factory=ObservabilityConfig)

    def __post_init__(self) -> None:
        if self.scheduler.preemption_mode == "swap" and not self.cache.swap_space:
            raise ConfigError("--preemption-mode swap needs --swap-space: GiB to move blocks to")
