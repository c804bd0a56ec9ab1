"""LLM.embed, encode, classify, reward and score on real tiny models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from octavo import LLM, PoolingParams, SamplingParams
from octavo.errors import InvalidRequestError
from tests.support.tiny_encoders import (
    class_scores,
    hidden_states,
    make_encoder,
    pair_library,
    save_encoder,
)
from tests.support.tiny_pooling import SMALL

IDS = [0, 17, 44, 61, 2]
TEXTS = ["Paris is the capital of France", "The quick brown fox", "Numbers 0 1 2"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    names = ("bert", "bert_reranker", "bert_classifier", "qwen3_lm")
    return {name: save_encoder(make_encoder(name), root / name) for name in names}


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bert(folders: dict[str, Path], backend: str) -> Iterator[LLM]:
    with LLM(str(folders["bert"]), backend=backend, **SMALL) as llm:
        yield llm


def test_embed_gives_one_vector_for_each_prompt_in_order(bert: LLM) -> None:
    """Texts and ids, more of them than run at once; of the first token, one unit long."""
    outputs = bert.embed([*TEXTS, IDS, *TEXTS], use_tqdm=False)

    state = hidden_states(make_encoder("bert"), IDS)[0]
    torch.testing.assert_close(
        torch.tensor(outputs[3].outputs.embedding), state / state.norm(), rtol=1e-4, atol=1e-5
    )
    assert outputs[3].prompt_token_ids == IDS
    assert outputs[3].outputs.hidden_size == 64
    assert all(output.finished for output in outputs)
    assert outputs[1].outputs.embedding == pytest.approx(outputs[5].outputs.embedding, abs=1e-6)


def test_encode_gives_vectors_of_tokens_when_asked(bert: LLM) -> None:
    """`pooling_task` and parameters must not disagree."""
    [output] = bert.encode(
        [IDS], PoolingParams(use_activation=False), pooling_task="token_embed", use_tqdm=False
    )

    expected = hidden_states(make_encoder("bert"), IDS)
    torch.testing.assert_close(torch.tensor(output.outputs.data), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(InvalidRequestError, match="ask for the task embed"):
        bert.encode(IDS, PoolingParams(task="embed"), pooling_task="token_embed")


def test_the_prompt_that_is_wrong_is_named(bert: LLM) -> None:
    """And none is computed."""
    with pytest.raises(InvalidRequestError, match=r"prompt 1: .*maximum context length is 130"):
        bert.embed(["fine", "fox " * 400], use_tqdm=False)
    with pytest.raises(InvalidRequestError, match="its tasks are embed"):
        bert.generate("text", use_tqdm=False)


def test_a_long_prompt_may_be_cut(bert: LLM) -> None:
    """Texts with their special tokens around what is left, ids at their end."""
    long_text = "fox " * 400
    prompts = [long_text, {"prompt": long_text}, IDS]

    cut = bert.embed(prompts, truncate_prompt_tokens=4, use_tqdm=False)
    [whole] = bert.embed(long_text, truncate_prompt_tokens=-1, use_tqdm=False)
    [score] = bert.score(long_text, "fox fox", truncate_prompt_tokens=4, use_tqdm=False)

    [short] = bert.embed("fox fox", use_tqdm=False)
    assert [short.prompt_token_ids] * 2 == [one.prompt_token_ids for one in cut[:2]]
    assert cut[2].prompt_token_ids == IDS[:4]
    assert len(whole.prompt_token_ids) == 130
    assert score.outputs.score == pytest.approx(1.0, abs=1e-6)
    with pytest.raises(InvalidRequestError, match="truncate_prompt_tokens must be -1"):
        bert.embed(long_text, truncate_prompt_tokens=131)


def test_segments_may_be_given_by_hand(bert: LLM) -> None:
    """As vLLM's token_type_ids: zeros, then ones."""
    types = [0, 0, 0, 1, 1]
    prompt = {"prompt_token_ids": IDS, "token_type_ids": types}
    [output] = bert.embed([prompt], PoolingParams(use_activation=False), use_tqdm=False)

    state = hidden_states(make_encoder("bert"), IDS, 3)[0]
    torch.testing.assert_close(torch.tensor(output.outputs.embedding), state, rtol=1e-4, atol=1e-4)
    with pytest.raises(InvalidRequestError, match="zeros for the first text"):
        bert.embed([{"prompt_token_ids": IDS, "token_type_ids": [0, 1, 0, 1, 1]}])
    with pytest.raises(InvalidRequestError, match="list of 5 numbers"):
        bert.embed([{"prompt_token_ids": IDS, "token_type_ids": [0]}])


def test_classify_and_reward_give_numbers_of_labels(folders: dict[str, Path], backend: str) -> None:
    """Probabilities, and bare scores."""
    scores = class_scores(make_encoder("bert_classifier"), IDS)
    with LLM(str(folders["bert_classifier"]), backend=backend, **SMALL) as llm:
        [classified] = llm.classify([IDS], use_tqdm=False)
        [rewarded] = llm.reward([IDS], use_tqdm=False)

    assert classified.outputs.num_classes == 3
    torch.testing.assert_close(
        torch.tensor(classified.outputs.probs), scores.softmax(0), rtol=1e-3, atol=1e-4
    )
    torch.testing.assert_close(torch.tensor(rewarded.outputs.data), scores, rtol=1e-3, atol=1e-4)


def test_score_reads_each_pair(folders: dict[str, Path], backend: str) -> None:
    """One text with each of many, as the tokenizer joins them."""
    with LLM(str(folders["bert_reranker"]), backend=backend, **SMALL) as llm:
        outputs = llm.score(TEXTS[0], TEXTS[1:], use_tqdm=False)

    for text, output in zip(TEXTS[1:], outputs, strict=True):
        encoding = pair_library().encode(TEXTS[0], text)
        begin = encoding.type_ids.index(1)
        expected = class_scores(make_encoder("bert_reranker"), encoding.ids, begin)[0].sigmoid()
        assert output.outputs.score == pytest.approx(float(expected), abs=1e-4)
        assert output.prompt_token_ids == encoding.ids


@pytest.mark.parametrize("pooling_type", ["LAST", "MEAN"])
def test_any_decoder_embeds_by_its_last_token_or_their_mean(
    folders: dict[str, Path], backend: str, pooling_type: str
) -> None:
    """Long prompts come in chunks where only the last token counts."""
    states = hidden_states(make_encoder("qwen3_lm"), IDS * 9)
    expected = states[-1] if pooling_type == "LAST" else states.mean(dim=0)
    options = {**SMALL, "max_num_batched_tokens": 16, "kv_cache_dtype": "float32"}
    with LLM(
        str(folders["qwen3_lm"]),
        runner="pooling",
        pooler_config={"pooling_type": pooling_type},
        backend=backend,
        **options,
    ) as llm:
        [output] = llm.embed([IDS * 9], use_tqdm=False)

    torch.testing.assert_close(
        torch.tensor(output.outputs.embedding), expected / expected.norm(), rtol=1e-4, atol=1e-5
    )


def test_a_model_of_text_names_the_flag_that_makes_vectors(folders: dict[str, Path]) -> None:
    """It generates unless told otherwise, also by vLLM's older `task`."""
    with (
        LLM(str(folders["qwen3_lm"]), **SMALL) as llm,
        pytest.raises(InvalidRequestError, match="--runner pooling"),
    ):
        llm.embed("text", use_tqdm=False)
    with LLM(str(folders["qwen3_lm"]), task="embed", **SMALL) as llm:
        assert len(llm.embed("text", use_tqdm=False)) == 1


def test_heads_that_are_not_used_are_not_read_and_not_complained_of(
    folders: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """A vocabulary's matrix on a decoder, a pooler on an encoder."""
    for name in ("qwen3_lm", "bert"):
        with LLM(str(folders[name]), runner="pooling", **SMALL) as llm:
            llm.embed([IDS], use_tqdm=False)

    assert "not used" not in caplog.text


def test_an_embedding_models_decoder_may_still_write(folders: dict[str, Path]) -> None:
    """With `--runner generate`, although its folder says how it pools."""
    folder = folders["qwen3_lm"]
    modules = folder / "modules.json"
    modules.write_text(
        '[{"path": "", "type": "a.Transformer"}, {"path": "", "type": "a.Normalize"}]'
    )
    try:
        with LLM(str(folder), runner="generate", **SMALL) as llm:
            [output] = llm.generate([IDS], SamplingParams(max_tokens=3), use_tqdm=False)
        with LLM(str(folder), **SMALL) as llm:
            [vector] = llm.embed([IDS], use_tqdm=False)
    finally:
        modules.unlink()

    assert len(output.outputs[0].token_ids) <= 3
    assert vector.outputs.hidden_size == 64
