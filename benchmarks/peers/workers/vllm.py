"""vLLM on a CPU through its `LLM`. Options: `dtype`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.workers.protocol import Limits, serve


class Vllm:
    """See `protocol.Model`."""

    def __init__(self, path: str, options: dict[str, Any], limits: Limits) -> None:
        self._api: Any = import_module("vllm")
        self._llm = self._api.LLM(
            model=path,
            max_model_len=limits.max_len,
            max_num_seqs=limits.max_batch,
            enable_prefix_caching=False,
            **{"dtype": "float32", **options},
        )
        self.about = {
            "version": f"vllm {self._api.__version__}",
            "hardware": options.get("dtype", "float32"),
        }

    def generate(self, prompts: list[list[int]], new_len: int) -> list[list[int]]:
        """See `protocol.Model`."""
        params = self._api.SamplingParams(
            temperature=0.0, max_tokens=new_len, ignore_eos=True, detokenize=False
        )
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = self._llm.generate(asked, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]


if __name__ == "__main__":
    serve(Vllm)
