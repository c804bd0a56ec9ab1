"""A real embedding model gives the vectors that transformers computes, and ranks by meaning."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor

from octavo import LLM
from tests.support.data import minilm_folder

BOOK = Path(__file__).with_name("alice.txt").read_text(encoding="utf-8")
PARAGRAPHS = [" ".join(text.split()) for text in BOOK.split("\n\n") if 60 < len(text) < 700][:24]
LARGEST_DIFFERENCE = 2e-6


@torch.inference_mode()
def expected_vectors(folder: Path, texts: list[str]) -> Tensor:
    """Mean over the tokens, one unit long, one text at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    means = [
        model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
        for text in texts
    ]
    return torch.nn.functional.normalize(torch.stack(means))


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(str(minilm_folder()), threads=2)


def test_embeddings_of_a_book_are_those_of_transformers(llm: LLM) -> None:
    """Many texts at once here, each alone there."""
    outputs = llm.embed(PARAGRAPHS, use_tqdm=False)

    vectors = torch.tensor([output.outputs.embedding for output in outputs])
    expected = expected_vectors(minilm_folder(), PARAGRAPHS)
    assert float((vectors - expected).abs().max()) < LARGEST_DIFFERENCE


def test_the_context_is_what_sentence_transformers_cuts_to(llm: LLM) -> None:
    """Half of what the table of positions holds."""
    assert llm.llm_engine.engine.max_model_len == 256


def test_a_question_is_nearest_to_its_answer(llm: LLM) -> None:
    """By the cosine of two vectors."""
    documents = ["A recipe for apple pie", "Paris is the capital of France", "How engines work"]

    scores = llm.score("Which city is the capital of France?", documents, use_tqdm=False)

    found = [output.outputs.score for output in scores]
    assert found.index(max(found)) == 1
