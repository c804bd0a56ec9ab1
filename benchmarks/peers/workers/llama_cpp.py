"""llama.cpp through the C functions of llama-cpp-python, as its own batched benchmark calls them.

All prompts go in slices of the largest batch, then every step decodes one token of each sequence.
Sequences have streams of their own in the KV cache (`kv_unified` off), which is the faster way for
sequences that share nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from benchmarks.peers.workers.protocol import Limits, package_version, serve

_BATCH = 2048  # tokens of one call; llama.cpp's default


class LlamaCpp:
    """See `protocol.Model`."""

    def __init__(self, path: str, options: dict[str, Any], limits: Limits) -> None:
        self._api: Any = import_module("llama_cpp")
        self._limits = limits
        self._options = options
        self._api.llama_backend_init()
        self._model = self._api.llama_model_load_from_file(
            path.encode(), self._api.llama_model_default_params()
        )
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._contexts: dict[int, Any] = {}  # by number of sequences
        self._greedy = self._api.llama_sampler_init_greedy()
        self._batch = self._api.llama_batch_init(_BATCH, 0, 1)
        system = self._api.llama_print_system_info().decode()
        self.about = {"version": package_version("llama-cpp-python"), "hardware": system}

    def generate(self, prompts: list[list[int]], new_len: int) -> list[list[int]]:
        """See `protocol.Model`."""
        api, context = self._api, self._context(len(prompts))
        api.llama_memory_clear(api.llama_get_memory(context), True)
        last = self._prefill(context, prompts)
        answers: list[list[int]] = [[token] for token in last]
        for step in range(1, new_len):
            self._batch.n_tokens = 0
            for sequence, prompt in enumerate(prompts):
                position = len(prompt) + step - 1
                self._add(answers[sequence][-1], position, sequence, wants_logits=True)
            self._decode(context)
            for sequence in range(len(prompts)):
                token = api.llama_sampler_sample(self._greedy, context, sequence)
                answers[sequence].append(token)
        return answers

    def _prefill(self, context: Any, prompts: list[list[int]]) -> list[int]:
        """The first token of each answer."""
        found: list[int] = []
        batch, pending = self._batch, 0
        batch.n_tokens = 0
        wanted: list[int] = []

        def flush() -> None:
            nonlocal pending
            self._decode(context)
            sample = self._api.llama_sampler_sample
            found.extend([sample(self._greedy, context, place) for place in wanted])
            wanted.clear()
            batch.n_tokens = 0
            pending = 0

        for sequence, prompt in enumerate(prompts):
            for position, token in enumerate(prompt):
                if pending == _BATCH:
                    flush()
                is_last = position == len(prompt) - 1
                self._add(token, position, sequence, wants_logits=is_last)
                if is_last:
                    wanted.append(pending)
                pending += 1
        flush()
        return found

    def _add(self, token: int, position: int, sequence: int, *, wants_logits: bool) -> None:
        batch = self._batch
        place = batch.n_tokens
        batch.token[place] = token
        batch.pos[place] = position
        batch.n_seq_id[place] = 1
        batch.seq_id[place][0] = sequence
        batch.logits[place] = wants_logits
        batch.n_tokens = place + 1

    def _decode(self, context: Any) -> None:
        code = self._api.llama_decode(context, self._batch)
        if code:
            raise RuntimeError(f"llama_decode returned {code}")

    def _context(self, num_sequences: int) -> Any:
        if num_sequences not in self._contexts:
            limits, params = self._limits, self._api.llama_context_default_params()
            room = limits.max_len if num_sequences == 1 else limits.max_len // 4
            params.n_ctx = room * num_sequences
            params.n_seq_max = num_sequences
            params.n_batch = _BATCH
            params.n_threads = params.n_threads_batch = limits.threads
            for name, value in self._options.items():
                setattr(params, name, value)
            context = self._api.llama_init_from_model(self._model, params)
            if not context:
                raise RuntimeError(f"llama.cpp makes no context of {num_sequences} sequences")
            self._contexts[num_sequences] = context
        return self._contexts[num_sequences]


if __name__ == "__main__":
    serve(LlamaCpp)
