"""transformers with the numbers of a real GGUF file: the oracle of the golden tests.

transformers reads and dequantises the file itself, so nothing of ours stands between the file and
the oracle. All weights become float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel
from transformers.generation import LogitsProcessor, LogitsProcessorList
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint


@dataclass(frozen=True)
class BeamCase:
    """What one beam search is asked for."""

    prompt_token_ids: list[int]
    beam_width: int
    length_penalty: float
    early_stopping: bool | str
    max_tokens: int
    ignore_eos: bool = False


@dataclass(frozen=True)
class BeamAnswer:
    """One of the sequences that came back."""

    token_ids: list[int]  # generated ones, the end token included
    score: float


def load_oracle(path: Path) -> PreTrainedModel:
    """The model of a GGUF file, without its tokenizer."""
    config = load_gguf_checkpoint(str(path))["config"]
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config), dtype=torch.float32)
    tensors = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert (missing, unexpected) == (["lm_head.weight"], []), (missing, unexpected)
    model.tie_weights()
    model.generation_config.eos_token_id = None  # or an absent end token would come from here
    return model.eval()


@torch.inference_mode()
def oracle_beams(model: PreTrainedModel, case: BeamCase, noise: float = 0.0) -> list[BeamAnswer]:
    """All beams of a search, best first.

    `noise` moves every log-probability at random by at most so much. Answers that stay the same are
    no accidents of rounding.
    """
    prompt = torch.tensor([case.prompt_token_ids])
    eos = model.config.eos_token_id
    options: dict[str, Any] = {
        "num_beams": case.beam_width,
        "num_return_sequences": case.beam_width,
        "max_new_tokens": case.max_tokens,
        "length_penalty": case.length_penalty,
        "early_stopping": case.early_stopping,
        "eos_token_id": None if case.ignore_eos else eos,
    }
    found = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        pad_token_id=eos,
        output_scores=True,
        return_dict_in_generate=True,
        logits_processor=LogitsProcessorList([_Shake(noise)] if noise else []),
        **options,
    )
    answers = []
    for sequence, score in zip(found.sequences, found.sequences_scores, strict=True):
        token_ids = sequence[prompt.shape[1] :].tolist()
        if not case.ignore_eos and eos in token_ids:
            token_ids = token_ids[: token_ids.index(eos) + 1]  # padding follows
        answers.append(BeamAnswer(token_ids, score.item()))
    return answers


class _Shake(LogitsProcessor):
    """Adds noise to log-probabilities."""

    def __init__(self, noise: float) -> None:
        self._noise = noise
        self._random = torch.Generator().manual_seed(1)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores + (torch.rand(scores.shape, generator=self._random) * 2 - 1) * self._noise
