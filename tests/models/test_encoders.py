"""Models that make vectors give transformers' numbers on both back ends, however batched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGMLQuantizationType as GgmlType
from gguf import PoolingType
from torch import Tensor
from transformers import PreTrainedModel

from octavo.contracts.step import PoolingMethod
from octavo.runner.base import Runner
from octavo.runner.native_runner import NativeRunner
from octavo.weights.checkpoint import Checkpoint, understood_as
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.hf_folder import open_folder
from tests.models.conftest import BACKENDS
from tests.support.step_driver import RunnerSizes, StepDriver, start_runner
from tests.support.tiny_encoders import (
    CASES,
    VOCAB_SIZE,
    add_dense,
    as_sentence_transformer,
    class_scores,
    hidden_states,
    make_encoder,
    next_logits,
    pair_library,
    save_encoder,
)
from tests.support.tiny_gguf import StoredTensor, all_of, oracle_of, quantise, write_gguf
from tests.support.tiny_tokenizer import SENTENCES

PROMPT = tuple(5 + (7 * i * i + 3 * i + 11) % (VOCAB_SIZE - 5) for i in range(75))
OTHERS = (PROMPT[:9], PROMPT[40:41], PROMPT[5:33])
SIZES = RunnerSizes(max_model_len=100, max_num_batched_tokens=160, threads=1)
LARGEST_DIFFERENCE = 2e-4
CLASSIFIERS = [name for name, case in CASES.items() if "Classification" in case.model]
HEADLESS = [name for name, case in CASES.items() if case.model.endswith("Model")]
# How a GGUF file of a case pools; the others take their first token.
POOLED = {
    "bert": PoolingType.MEAN,
    "embedding_gemma": PoolingType.MEAN,
    "qwen3": PoolingType.LAST,
    "xlm_roberta_reranker": PoolingType.RANK,
}
POOLED_BY = {PoolingType.CLS: "first", PoolingType.MEAN: "mean", PoolingType.LAST: "last"}
GGUF_FILES = [
    ("bert", GgmlType.F32),
    ("bert", GgmlType.F16),
    ("bert", GgmlType.Q8_0),
    ("roberta", GgmlType.F16),
    ("xlm_roberta", GgmlType.Q8_0),
    ("modernbert", GgmlType.Q8_0),
    ("qwen3", GgmlType.Q8_0),
    ("embedding_gemma", GgmlType.BF16),
]
TWO_TEXTS = [name for name, case in CASES.items() if case.config == "BertConfig"]


def opened(folder: Path, **options: Any) -> Checkpoint:
    """As the engine opens a model of vectors: without heads that it was trained with."""
    checkpoint = open_folder(folder, **options)
    return understood_as(checkpoint, checkpoint.facts)


@dataclass
class Made:
    """A model in a folder, and transformers with the same numbers."""

    oracle: PreTrainedModel
    folder: Path
    checkpoint: Checkpoint


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """Each model is made once. Decoders are told to make vectors."""
    root, known = tmp_path_factory.mktemp("encoders"), dict[str, Made]()
    torch.set_num_threads(1)

    def make(name: str) -> Made:
        if name not in known:
            oracle = make_encoder(name)
            folder = save_encoder(oracle, root / name)
            known[name] = Made(oracle, folder, opened(folder))
        return known[name]

    return make


@dataclass
class Running:
    """A tiny model on a back end."""

    oracle: PreTrainedModel
    checkpoint: Checkpoint
    runner: Runner
    method: PoolingMethod

    def vectors(
        self,
        prompt: tuple[int, ...] = PROMPT,
        method: PoolingMethod | None = None,
        *,
        second_segment: int = -1,
    ) -> Tensor:
        """Of one prompt, alone: [n, width]."""
        driver = StepDriver(self.runner, SIZES)
        row = driver.add(prompt, pooling=method or self.method, second_segment=second_segment)
        result = driver.step({row: len(prompt)})
        assert not result.errors, result.errors
        assert not result.sampled
        driver.finish(row)
        driver.step({})
        return numbers(result.pooled[row], self.checkpoint)


def numbers(raw: bytes, checkpoint: Checkpoint) -> Tensor:
    pooling = checkpoint.facts.pooling
    assert pooling is not None
    width = pooling.layers[-1].out_features if pooling.layers else checkpoint.facts.hidden_size
    return torch.frombuffer(bytearray(raw), dtype=torch.float32).reshape(-1, width)


@pytest.fixture
def running(
    request: pytest.FixtureRequest, backend: str, made: Callable[[str], Made]
) -> Iterator[Running]:
    model = made(request.param)
    runner = start_runner(BACKENDS[backend], model.checkpoint, SIZES)
    yield Running(model.oracle, model.checkpoint, runner, CASES[request.param].method)
    runner.close()


@pytest.mark.parametrize("running", HEADLESS, indirect=True)
def test_every_tokens_vector_is_that_of_transformers(
    running: Running, backend: str, record_property: Callable[[str, object], None]
) -> None:
    """And the prompt's own vector is one of them."""
    expected = hidden_states(running.oracle, PROMPT)

    everything = running.vectors(method="all")

    difference = float((everything - expected).abs().max())
    assert difference < LARGEST_DIFFERENCE
    place = 0 if running.method == "first" else -1
    assert torch.equal(everything[place], running.vectors()[0])
    record(record_property, running, backend, difference)


@pytest.mark.parametrize("running", CLASSIFIERS, indirect=True)
def test_scores_of_labels_are_those_of_transformers(
    running: Running, backend: str, record_property: Callable[[str, object], None]
) -> None:
    """Pooling, the small layers and the classifier on top."""
    expected = class_scores(running.oracle, PROMPT)

    difference = float((running.vectors()[0] - expected).abs().max())

    assert difference < LARGEST_DIFFERENCE
    record(record_property, running, backend, difference)


def running_gguf(name: str, type: GgmlType, backend: str, path: Path) -> Running:
    """A model of vectors in a GGUF file, and the oracle of what that stores."""
    model, kind = make_encoder(name), POOLED.get(name, PoolingType.CLS)
    stored = quantise(model, all_of(type))
    write_gguf(model, stored, path, kind)
    checkpoint = open_gguf(path)
    pooling = checkpoint.facts.pooling
    assert pooling is not None
    runner = start_runner(BACKENDS[backend], understood_as(checkpoint, checkpoint.facts), SIZES)
    return Running(oracle_of(model, stored), checkpoint, runner, pooling.method)


@pytest.mark.parametrize(("name", "type"), GGUF_FILES)
def test_a_gguf_file_gives_the_vectors_of_transformers_with_the_numbers_that_it_stores(
    name: str,
    type: GgmlType,
    backend: str,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    """Of every token, and pooled as the file says."""
    running = running_gguf(name, type, backend, tmp_path / "model.gguf")
    expected = hidden_states(running.oracle, PROMPT)

    states, pooled = running.vectors(method="all"), running.vectors()[0]

    running.runner.close()
    difference = float((states - expected).abs().max())
    assert difference < LARGEST_DIFFERENCE
    place = {"first": expected[0], "mean": expected.mean(dim=0), "last": expected[-1]}
    torch.testing.assert_close(pooled, place[running.method], rtol=1e-4, atol=LARGEST_DIFFERENCE)
    assert running.method == POOLED_BY[POOLED.get(name, PoolingType.CLS)]
    record(record_property, running, backend, difference, file="GGUF")


@pytest.mark.parametrize("name", ["xlm_roberta_reranker"])
def test_a_gguf_file_of_a_reranker_gives_the_scores_of_transformers(
    name: str, backend: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Both small layers of its head are in the file."""
    running = running_gguf(name, GgmlType.F16, backend, tmp_path / "model.gguf")
    expected = class_scores(running.oracle, PROMPT)

    difference = float((running.vectors()[0] - expected).abs().max())

    running.runner.close()
    assert difference < LARGEST_DIFFERENCE
    record(record_property, running, backend, difference, file="GGUF")


def test_small_layers_of_a_gguf_file_stand_on_top(backend: str, tmp_path: Path) -> None:
    """As EmbeddingGemma has them, without biases."""
    model = make_encoder("embedding_gemma")
    stored, generator = quantise(model, all_of(GgmlType.F32)), torch.Generator().manual_seed(3)
    shapes = {"dense_2.weight": (96, 64), "dense_3.weight": (24, 96)}
    matrices = {n: torch.randn(shape, generator=generator) / 8 for n, shape in shapes.items()}
    for name, matrix in matrices.items():
        stored[name] = StoredTensor(GgmlType.F32, matrix.numpy(), tuple(matrix.shape))
    write_gguf(model, stored, tmp_path / "model.gguf", PoolingType.MEAN)
    checkpoint = open_gguf(tmp_path / "model.gguf")
    runner = start_runner(BACKENDS[backend], checkpoint, SIZES)
    expected = hidden_states(model, PROMPT).mean(dim=0)
    for matrix in matrices.values():
        expected = matrix @ expected

    vector = Running(model, checkpoint, runner, "mean").vectors()[0]

    runner.close()
    torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-4)


def test_a_gguf_file_of_bert_has_two_segments_and_the_tokenizer_of_its_folder(
    backend: str, tmp_path: Path
) -> None:
    """Vectors of pairs are those of transformers."""
    running = running_gguf("bert", GgmlType.F32, backend, tmp_path / "model.gguf")
    states = hidden_states(running.oracle, PROMPT, 40)

    pair = running.vectors(method="all", second_segment=40)

    running.runner.close()
    torch.testing.assert_close(pair, states, rtol=0, atol=LARGEST_DIFFERENCE)
    tokenizer = running.checkpoint.load_tokenizer()
    for text in (*SENTENCES, "Unhappily, fox-like [SEP] 3.5"):
        encoding = pair_library().encode(text, "the fox")
        expected = (encoding.ids, encoding.type_ids.index(1))
        assert expected == tokenizer.encode_pair(text, "the fox")
        assert tokenizer.encode(text) == pair_library().encode(text).ids


def record(
    record_property: Callable[[str, object], None],
    running: Running,
    backend: str,
    difference: float,
    file: str = "folder",
) -> None:
    """For tools/model_table.py."""
    record_property("architecture", type(running.oracle).__name__)
    record_property("file", file)
    record_property("backend", backend)
    record_property("largest_difference", difference)


@pytest.mark.parametrize("running", ["bert_masked_lm"], indirect=True)
def test_a_head_for_guessing_words_is_left_out(running: Running) -> None:
    """The encoder below it is the model."""
    expected = hidden_states(running.oracle, PROMPT)

    assert float((running.vectors(method="all") - expected).abs().max()) < LARGEST_DIFFERENCE


@pytest.mark.parametrize("running", TWO_TEXTS, indirect=True)
def test_the_second_of_two_texts_has_vectors_of_its_own(running: Running) -> None:
    """Segments reach the embeddings, and change the result."""
    is_classifier = hasattr(running.oracle, "classifier")
    expected = (
        class_scores(running.oracle, PROMPT, 30)[None]
        if is_classifier
        else hidden_states(running.oracle, PROMPT, 30)[:1]
    )

    pair = running.vectors(second_segment=30)

    assert float((pair - expected).abs().max()) < LARGEST_DIFFERENCE
    assert not torch.allclose(pair, running.vectors(), atol=1e-2)


@pytest.mark.parametrize("mode", ["cls", "mean", "lasttoken"])
def test_pooling_is_what_sentence_transformers_wrote(
    mode: str, backend: str, tmp_path: Path
) -> None:
    """The mean over all tokens, the first or the last."""
    flag = "pooling_mode_lasttoken" if mode == "lasttoken" else f"pooling_mode_{mode}_token"
    flag += "s" if mode == "mean" else ""
    oracle = make_encoder("bert")
    folder = save_encoder(oracle, tmp_path / "model")
    checkpoint = opened(as_sentence_transformer(folder, flag, max_seq_length=110))
    pooling = checkpoint.facts.pooling
    assert pooling is not None
    assert checkpoint.facts.max_position == 110  # of the 130 that config.json allows
    runner = start_runner(BACKENDS[backend], checkpoint, SIZES)
    states = hidden_states(oracle, PROMPT)
    expected = {"cls": states[0], "mean": states.mean(dim=0), "lasttoken": states[-1]}[mode]

    vector = Running(oracle, checkpoint, runner, pooling.method).vectors()[0]

    runner.close()
    torch.testing.assert_close(vector, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["native"], indirect=True)
@pytest.mark.parametrize("name", [*HEADLESS, *CLASSIFIERS])
def test_bits_do_not_depend_on_neighbours_or_threads(
    name: str, backend: str, made: Callable[[str], Made]
) -> None:
    """A prompt alone on one thread, and among others on three."""
    checkpoint, method = made(name).checkpoint, CASES[name].method
    found = []
    for threads, prompts in ((1, (PROMPT,)), (3, (*OTHERS, PROMPT)), (2, (PROMPT, *OTHERS))):
        sizes = RunnerSizes(max_model_len=100, max_num_batched_tokens=160, threads=threads)
        runner = start_runner(NativeRunner, checkpoint, sizes)
        driver = StepDriver(runner, sizes)
        rows = [driver.add(prompt, pooling=method) for prompt in prompts]
        result = driver.step({row: len(p) for row, p in zip(rows, prompts, strict=True)})
        found.append(result.pooled[rows[prompts.index(PROMPT)]])
        runner.close()

    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("running", ["qwen3", "qwen3_reranker"], indirect=True)
def test_a_decoders_last_token_may_come_in_pieces(running: Running) -> None:
    """The earlier tokens are in the cache."""
    driver = StepDriver(running.runner, SIZES)
    row = driver.add(PROMPT, pooling="last")
    results = [driver.step({row: count}) for count in (31, 40, 4)]

    assert [[], [], [row]] == [list(result.pooled) for result in results]
    vector = numbers(results[-1].pooled[row], running.checkpoint)
    driver.finish(row)
    driver.step({})
    torch.testing.assert_close(vector, running.vectors(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", ["native"], indirect=True)
@pytest.mark.parametrize("running", ["bert"], indirect=True)
@pytest.mark.parametrize("method", ["first", "mean", "all"])
def test_a_prompt_that_must_be_whole_is_not_computed_in_pieces(
    running: Running, method: PoolingMethod
) -> None:
    """The runner says so instead of making a wrong vector."""
    driver = StepDriver(running.runner, SIZES)
    row = driver.add(PROMPT, pooling=method)

    with pytest.raises(ValueError, match="must be computed in one step"):
        driver.step({row: 30})


@pytest.mark.parametrize("backend", ["native"], indirect=True)
@pytest.mark.parametrize("running", ["xlm_roberta"], indirect=True)
def test_a_model_without_segments_refuses_a_second_text(running: Running) -> None:
    """Its table has no row for it."""
    driver = StepDriver(running.runner, SIZES)
    row = driver.add(PROMPT, pooling="first", second_segment=9)

    with pytest.raises(ValueError, match="one segment only"):
        driver.step({row: len(PROMPT)})


@pytest.mark.parametrize("tied", [True, False])
def test_a_reranker_that_answers_with_a_word_scores_it(
    tied: bool, backend: str, tmp_path: Path
) -> None:
    """The logit of "yes" over "no" after the last token, as a classifier of one label."""
    oracle = make_encoder("qwen3_lm", tie_word_embeddings=tied)
    folder = save_encoder(oracle, tmp_path / "model")
    overrides = {
        "architectures": ["Qwen3ForSequenceClassification"],
        "classifier_from_token": ["fox", "dog"],
        "is_original_qwen3_reranker": True,
    }
    checkpoint = opened(folder, overrides=overrides)
    runner = start_runner(BACKENDS[backend], checkpoint, SIZES)
    fox, dog = (pair_library().token_to_id(word) for word in ("fox", "dog"))
    logits = next_logits(oracle, PROMPT)

    score = Running(oracle, checkpoint, runner, "last").vectors()

    runner.close()
    assert score.shape == (1, 1)
    assert float(score) == pytest.approx(float(logits[dog] - logits[fox]), abs=1e-4)
    assert open_folder(folder).facts.pooling is None


def test_small_layers_of_sentence_transformers_stand_on_top(backend: str, tmp_path: Path) -> None:
    """Their weights lie in folders of their own."""
    oracle = make_encoder("bert")
    folder = as_sentence_transformer(
        save_encoder(oracle, tmp_path / "model"), "pooling_mode_mean_tokens"
    )
    matrix, bias = add_dense(folder, out_features=24)
    checkpoint = opened(folder)
    runner = start_runner(BACKENDS[backend], checkpoint, SIZES)
    mean = hidden_states(oracle, PROMPT).mean(dim=0)

    vector = Running(oracle, checkpoint, runner, "mean").vectors()[0]

    runner.close()
    torch.testing.assert_close(vector, torch.tanh(matrix @ mean + bias), rtol=1e-4, atol=1e-4)
