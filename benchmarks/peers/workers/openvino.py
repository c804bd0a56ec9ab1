"""OpenVINO GenAI through its continuous batching pipeline. Options: properties of the device."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.workers.protocol import Limits, package_version, serve


class Openvino:
    """See `protocol.Model`."""

    def __init__(self, path: str, options: dict[str, Any], limits: Limits) -> None:
        self._genai: Any = import_module("openvino_genai")
        self._array: Any = import_module("numpy").array
        self._tensor: Any = import_module("openvino").Tensor
        scheduler = self._genai.SchedulerConfig()
        scheduler.cache_size = max(1, limits.kv_bytes >> 30)  # GiB
        scheduler.max_num_seqs = limits.max_batch
        scheduler.enable_prefix_caching = False
        scheduler.dynamic_split_fuse = True
        properties = {"INFERENCE_NUM_THREADS": limits.threads, **options}
        self._pipeline = self._genai.ContinuousBatchingPipeline(path, scheduler, "CPU", properties)
        self.about = {
            "version": package_version("openvino-genai"),
            "hardware": f"{limits.threads} threads, {options}",
        }

    def generate(self, prompts: list[list[int]], new_len: int) -> list[list[int]]:
        """See `protocol.Model`."""
        config = self._genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = new_len
        config.ignore_eos = True
        config.do_sample = False
        inputs = [self._tensor(self._array([ids], dtype="int64")) for ids in prompts]
        found = self._pipeline.generate(inputs, [config] * len(prompts))
        by_id = {one.m_request_id: list(one.m_generation_ids[0]) for one in found}
        return [by_id[key][-new_len:] for key in sorted(by_id)]


if __name__ == "__main__":
    serve(Openvino)
