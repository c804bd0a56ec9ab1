"""Variables of vLLM's that manifests carry: what to set here instead.

Only the commands with vLLM's names read any of them, and of those only what guards the server. No
variable is followed in silence, and none of those that are set is passed over in silence.
"""

from __future__ import annotations

from collections.abc import Mapping

READ: Mapping[str, str] = {"api_key": "VLLM_API_KEY"}
"""Field -> the variable that commands with vLLM's names read for it."""

INSTEAD: Mapping[str, str] = {
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "--max-model-len",
    "VLLM_CACHE_ROOT": "OCTAVO_CACHE",
    "VLLM_CPU_KVCACHE_SPACE": "--kv-cache-memory-bytes",
    "VLLM_CPU_NUM_OF_RESERVED_CPU": "--threads",
    "VLLM_CPU_OMP_THREADS_BIND": "--threads",
    "VLLM_ENABLE_RESPONSES_API_STORE": "--response-store",
    "VLLM_LOGGING_LEVEL": "OCTAVO_LOG_LEVEL",
    "VLLM_LOG_STATS_INTERVAL": "OCTAVO_LOG_STATS_INTERVAL",
}
"""Variable -> what does the same here."""


def no_effect(variable: str) -> str:
    """What is said of a variable that is set and not read."""
    instead = INSTEAD.get(variable)
    return f"{variable} has no effect{f': use {instead}' if instead else ' here'}"
