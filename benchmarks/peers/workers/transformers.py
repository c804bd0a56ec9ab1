"""transformers: `generate` over static batches, as most scripts use it. Options: `dtype`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.workers.protocol import Limits, package_version, serve


class Transformers:
    """See `protocol.Model`."""

    def __init__(self, path: str, options: dict[str, Any], limits: Limits) -> None:
        self._torch: Any = import_module("torch")
        library: Any = import_module("transformers")
        self._torch.set_num_threads(limits.threads)
        dtype = options.get("dtype", "float32")
        self._model = library.AutoModelForCausalLM.from_pretrained(
            path, dtype=getattr(self._torch, dtype), local_files_only=True
        ).eval()
        self._model.generation_config.eos_token_id = None
        self._model.generation_config.pad_token_id = 0
        self.about = {
            "version": f"{package_version('transformers')}, {package_version('torch')}",
            "hardware": f"{dtype}, {self._torch.get_num_threads()} threads",
        }

    def generate(self, prompts: list[list[int]], new_len: int) -> list[list[int]]:
        """See `protocol.Model`. The prompts must have one length."""
        ids = self._torch.tensor(prompts)
        with self._torch.inference_mode():
            found = self._model.generate(
                input_ids=ids,
                attention_mask=self._torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=new_len,
                max_new_tokens=new_len,
            )
        answers: list[list[int]] = found[:, ids.shape[1] :].tolist()
        return answers


if __name__ == "__main__":
    serve(Transformers)
