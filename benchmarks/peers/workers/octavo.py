"""Octavo through its `LLM`. Options are those of `LLM`."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.workers.protocol import Limits, serve
from octavo.llm import LLM
from octavo.sampling_params import SamplingParams
from octavo.version import version


class Octavo:
    """See `protocol.Model`."""

    def __init__(self, path: str, options: dict[str, Any], limits: Limits) -> None:
        self._llm = LLM(
            path,
            threads=limits.threads,
            enable_prefix_caching=False,
            kv_cache_memory_bytes=limits.kv_bytes,
            **options,
        )
        self.about = {
            "version": f"octavo {version()}",
            "hardware": self._llm.llm_engine.engine.hardware,
        }

    def generate(self, prompts: list[list[int]], new_len: int) -> list[list[int]]:
        """See `protocol.Model`."""
        params = SamplingParams(
            temperature=0.0, max_tokens=new_len, ignore_eos=True, detokenize=False
        )
        asked: list[Any] = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = self._llm.generate(asked, params, use_tqdm=False)
        return [output.outputs[0].token_ids for output in outputs]


if __name__ == "__main__":
    serve(Octavo)
