"""Tiny models, made once per session, and the back ends that run them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from octavo.backends.torch.runner import TorchRunner
from octavo.runner.native_runner import NativeRunner
from octavo.weights.checkpoint import Checkpoint
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.hf_folder import open_folder
from tests.support.step_driver import MakeRunner
from tests.support.tiny_gguf import ChooseType, oracle_of, quantise, write_gguf
from tests.support.tiny_models import PROMPT, make_oracle, save_folder


@dataclass
class TinyModel:
    """A model in a file, and transformers with the same numbers."""

    oracle: PreTrainedModel
    checkpoint: Checkpoint

    @cached_property
    def logprobs(self) -> Tensor:
        """After each token of PROMPT: [len(PROMPT), vocab_size]."""
        return self.oracle_logits(PROMPT).log_softmax(dim=-1)

    @torch.inference_mode()
    def oracle_logits(self, token_ids: tuple[int, ...] | list[int]) -> Tensor:
        logits: Tensor = self.oracle(torch.tensor([list(token_ids)])).logits[0]
        return logits

    def oracle_greedy(self, prompt: tuple[int, ...], num_new: int) -> list[int]:
        """Greedy tokens, each from a forward pass over everything before it."""
        token_ids = list(prompt)
        for _ in range(num_new):
            token_ids.append(int(self.oracle_logits(token_ids)[-1].argmax()))
        return token_ids[len(prompt) :]


BACKENDS: dict[str, MakeRunner] = {"torch": TorchRunner, "native": NativeRunner}


@pytest.fixture(params=list(BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    """A name in BACKENDS."""
    return str(request.param)


TinyModels = Callable[[str, str, ChooseType | None], TinyModel]


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """(case, name of the file, types of a GGUF file or None for a folder) -> model."""
    root: Path = tmp_path_factory.mktemp("tiny")
    oracles: dict[str, PreTrainedModel] = {}
    made: dict[tuple[str, str], TinyModel] = {}
    torch.set_num_threads(1)

    def make(case: str, file_name: str, choose: ChooseType | None) -> TinyModel:
        if case not in oracles:
            oracles[case] = make_oracle(case)
        oracle, path = oracles[case], root / f"{case}-{file_name}"
        if choose is None:
            save_folder(oracle, case, path)
            return TinyModel(oracle, open_folder(path))
        stored = quantise(oracle, choose)
        write_gguf(oracle, stored, path)
        return TinyModel(oracle_of(oracle, stored), open_gguf(path))

    def make_once(case: str, file_name: str, choose: ChooseType | None) -> TinyModel:
        if (case, file_name) not in made:
            made[case, file_name] = make(case, file_name, choose)
        return made[case, file_name]

    return make_once
