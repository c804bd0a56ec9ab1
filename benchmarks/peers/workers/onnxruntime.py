"""ONNX Runtime GenAI: its generator over static batches."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from benchmarks.peers.workers.protocol import Limits, package_version, serve


class Onnxruntime:
    """See `protocol.Model`."""

    def __init__(self, path: str, options: dict[str, Any], limits: Limits) -> None:
        self._api: Any = import_module("onnxruntime_genai")
        self._array: Any = import_module("numpy").array
        config = self._api.Config(path)
        threads = limits.threads
        config.overlay(
            json.dumps(
                {"model": {"decoder": {"session_options": {"intra_op_num_threads": threads}}}}
            )
        )
        self._model = self._api.Model(config)
        self.about = {
            "version": package_version("onnxruntime-genai"),
            "hardware": f"{threads} threads, {options}",
        }

    def generate(self, prompts: list[list[int]], new_len: int) -> list[list[int]]:
        """See `protocol.Model`. The prompts must have one length."""
        prompt_len = len(prompts[0])
        params = self._api.GeneratorParams(self._model)
        longest = prompt_len + new_len
        params.set_search_options(
            max_length=longest, min_length=longest, batch_size=len(prompts), do_sample=False
        )
        generator = self._api.Generator(self._model, params)
        generator.append_tokens(self._array(prompts, dtype="int32"))
        while not generator.is_done():
            generator.generate_next_token()
        return [
            [int(token) for token in generator.get_sequence(place)[prompt_len:]]
            for place in range(len(prompts))
        ]


if __name__ == "__main__":
    serve(Onnxruntime)
