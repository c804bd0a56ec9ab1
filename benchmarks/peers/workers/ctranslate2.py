"""CTranslate2: static batches of its `Generator`. Options: `compute_type`."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.workers.protocol import Limits, package_version, serve


class Ctranslate2:
    """See `protocol.Model`."""

    def __init__(self, path: str, options: dict[str, Any], limits: Limits) -> None:
        library: Any = import_module("ctranslate2")
        self._generator = library.Generator(
            path,
            device="cpu",
            intra_threads=limits.threads,
            inter_threads=1,
            **{"compute_type": "float32", **options},
        )
        self._tokens: list[str] = json.loads(Path(path, "vocabulary.json").read_text("utf-8"))
        self.about = {
            "version": package_version("ctranslate2"),
            "hardware": f"{self._generator.compute_type}, {limits.threads} threads",
        }

    def generate(self, prompts: list[list[int]], new_len: int) -> list[list[int]]:
        """See `protocol.Model`."""
        found = self._generator.generate_batch(
            [[self._tokens[token] for token in prompt] for prompt in prompts],
            max_length=new_len,
            min_length=new_len,
            sampling_topk=1,
            beam_size=1,
            end_token=[],
            include_prompt_in_result=False,
        )
        return [list(one.sequences_ids[0]) for one in found]


if __name__ == "__main__":
    serve(Ctranslate2)
