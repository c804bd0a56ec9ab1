"""ModelFacts from GGUF metadata."""

from __future__ import annotations

import logging
import math
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from octavo.config.model_facts import ModelFacts, RopeFacts
from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.weights.checkpoint import WeightType
from octavo.weights.gguf_checkpoint import open_gguf
from octavo.weights.gguf_facts import facts_from_gguf
from octavo.weights.gguf_metadata import GgufMetadata
from tests.support.data import gemma3_path, smollm2_path
from tests.support.gguf_bytes import (
    ARRAY,
    BOOL,
    F32,
    U32,
    GgufBytes,
    TensorBytes,
    array,
    strings,
    text,
    tiny_llama,
    value,
    with_keys,
    without_key,
)
from tests.support.random_checkpoint import tensor_of

Facts = Callable[[GgufBytes], ModelFacts]


@pytest.fixture
def facts_of(tmp_path: Path) -> Facts:
    """Write a file and read its facts."""

    def read(file: GgufBytes) -> ModelFacts:
        return open_gguf(file.write(tmp_path / "model.gguf")).facts

    return read


def tiny_gemma3() -> GgufBytes:
    return with_keys(tiny_llama("gemma3"), gemma3__attention__sliding_window=value(U32, 16))


def test_facts_of_smollm2() -> None:
    """The published shape of the model, from the real file."""
    checkpoint = open_gguf(smollm2_path())

    assert checkpoint.facts == ModelFacts(
        architecture="LlamaForCausalLM",
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_layers=30,
        num_heads=9,
        num_kv_heads=3,
        head_dim=64,
        max_position=8192,
        norm_eps=struct.unpack("<f", struct.pack("<f", 1e-5))[0],
        hidden_act="silu",
        rope=RopeFacts(theta=100000.0, rotary_dim=64),
        tie_word_embeddings=True,
        attention_scale=0.125,
        eos_token_ids=(2,),
        bos_token_id=1,
    )
    assert checkpoint.chat_template is not None
    assert "<|im_start|>" in checkpoint.chat_template


def test_facts_of_gemma3() -> None:
    """Five window layers to each full one, two rotary bases, scaled embeddings, ready norms."""
    checkpoint = open_gguf(gemma3_path())
    window = (512, 512, 512, 512, 512, 0)

    assert checkpoint.facts == ModelFacts(
        architecture="Gemma3ForCausalLM",
        vocab_size=262144,
        hidden_size=640,
        intermediate_size=2048,
        num_layers=18,
        num_heads=4,
        num_kv_heads=1,
        head_dim=256,
        max_position=32768,
        norm_eps=struct.unpack("<f", struct.pack("<f", 1e-6))[0],
        hidden_act="gelu_tanh",
        rope=RopeFacts(theta=1000000.0, rotary_dim=256),
        local_rope=RopeFacts(theta=10000.0, rotary_dim=256),
        tie_word_embeddings=True,
        qk_norm=True,
        attention_scale=0.0625,
        sliding_windows=window * 3,
        embedding_scale=math.sqrt(640),
        norm_weight_offset=0.0,
        eos_token_ids=(1,),
        bos_token_id=2,
    )
    assert checkpoint.chat_template is None


def test_the_output_matrix_is_the_embedding_unless_the_file_has_one(facts_of: Facts) -> None:
    """A tied model leaves `output.weight` out."""
    untied = tiny_llama()
    untied.tensors.append(TensorBytes("output.weight", (8, 5)))

    assert facts_of(tiny_llama()).tie_word_embeddings
    assert not facts_of(untied).tie_word_embeddings


def test_biases_and_head_norms_are_known_by_their_tensors(facts_of: Facts) -> None:
    """GGUF has no key for them."""
    file = tiny_llama("qwen3")
    for name, width in (("attn_q.bias", 8), ("attn_output.bias", 8), ("ffn_gate.bias", 16)):
        file.tensors.append(TensorBytes(f"blk.0.{name}", (width,)))
    file.tensors.append(TensorBytes("blk.0.attn_q_norm.weight", (4,)))

    facts = facts_of(file)

    assert facts.architecture == "Qwen3ForCausalLM"
    assert (
        facts.attention_bias,
        facts.attention_out_bias,
        facts.mlp_bias,
        facts.qk_norm,
    ) == (True, True, True, True)


def test_missing_keys_have_llama_cpp_s_meaning(facts_of: Facts) -> None:
    """As many KV heads as heads, heads that divide the hidden state, a base of 10000."""
    facts = facts_of(without_key(tiny_llama(), "llama.attention.head_count_kv"))

    assert facts.num_kv_heads == 2
    assert facts.head_dim == 4
    assert facts.rope == RopeFacts(theta=10000.0, rotary_dim=4)


def test_the_head_size_of_the_file_counts_where_it_has_one(facts_of: Facts) -> None:
    """Qwen 3 and Gemma have heads that do not divide the hidden state."""
    file = with_keys(
        tiny_llama("qwen3"),
        qwen3__attention__key_length=value(U32, 16),
        qwen3__attention__value_length=value(U32, 16),
    )

    assert facts_of(file).head_dim == 16
    assert facts_of(file).attention_scale == 0.25


def test_llama_3_brings_its_rope_factors_as_a_tensor(facts_of: Facts) -> None:
    """They become facts, in the order of the frequencies."""
    file = tiny_llama()
    divisors = struct.pack("<2f", 1.0, 8.0)
    file.tensors.append(TensorBytes("rope_freqs.weight", (2,), data=divisors))

    assert facts_of(file).rope.inv_freq_divisors == (1.0, 8.0)


@pytest.mark.parametrize("numbers", [(1.0, 0.0), (1.0, math.nan), (1.0, 2.0, 3.0)])
def test_rope_factors_that_cannot_divide_are_refused(
    facts_of: Facts, numbers: tuple[float, ...]
) -> None:
    """Zero, not a number, or not one for each frequency."""
    file = tiny_llama()
    raw = struct.pack(f"<{len(numbers)}f", *numbers)
    file.tensors.append(TensorBytes("rope_freqs.weight", (len(numbers),), data=raw))

    with pytest.raises(CorruptFileError, match=r"rope"):
        facts_of(file)


def test_yarn_stretches_the_promised_context(facts_of: Facts) -> None:
    """Factor and original context are the file's; llama.cpp's own factor multiplies the formula."""
    file = with_keys(
        tiny_llama("qwen2"),
        qwen2__rope__scaling__type=text("yarn"),
        qwen2__rope__scaling__factor=value(F32, 4.0),
        qwen2__rope__scaling__original_context_length=value(U32, 64),
        qwen2__rope__scaling__attn_factor=value(F32, 0.5),
    )

    facts = facts_of(file)

    assert facts.max_position == 256
    assert facts.rope == RopeFacts(
        theta=10000.0,
        rotary_dim=4,
        scaling="yarn",
        factor=4.0,
        original_max_position=64,
        attention_factor=0.5 * (0.1 * math.log(4.0) + 1.0),
    )


def test_linear_scaling_of_gemma_is_for_full_attention_only(facts_of: Facts) -> None:
    """Window layers keep their own, unscaled base; the context of the file is the scaled one."""
    file = with_keys(
        tiny_gemma3(),
        gemma3__rope__scaling__type=text("linear"),
        gemma3__rope__scaling__factor=value(F32, 8.0),
    )

    facts = facts_of(file)

    assert (facts.rope.scaling, facts.rope.factor) == ("linear", 8.0)
    assert facts.local_rope == RopeFacts(theta=10000.0, rotary_dim=4)
    assert facts.max_position == 64


def test_the_largest_gemma_3_scales_attention_by_hidden_size_over_heads(facts_of: Facts) -> None:
    """The 27B model, known by its 62 layers, is the one size whose scale is not the head's."""
    file = with_keys(
        tiny_gemma3(),
        gemma3__block_count=value(U32, 62),
        gemma3__attention__key_length=value(U32, 2),
        gemma3__attention__value_length=value(U32, 2),
    )

    assert facts_of(file).attention_scale == 4**-0.5
    assert facts_of(with_keys(file, gemma3__block_count=value(U32, 61))).attention_scale == 2**-0.5


def test_a_window_pattern_in_the_file_counts(facts_of: Facts) -> None:
    """As a period or as a flag for each layer."""
    file = with_keys(tiny_gemma3(), gemma3__block_count=value(U32, 4))
    period = with_keys(file, gemma3__attention__sliding_window_pattern=value(U32, 2))
    assert facts_of(period).sliding_windows == (16, 0, 16, 0)

    flags = array(BOOL, [b"\1", b"\1", b"\0", b"\1"])
    each = with_keys(file, gemma3__attention__sliding_window_pattern=(ARRAY, flags))
    assert facts_of(each).sliding_windows == (16, 16, 0, 16)


def test_every_id_that_ends_a_turn_is_an_eos_id(facts_of: Facts) -> None:
    """From the three keys, and from the chat template where it writes a known end-of-turn token."""
    file = with_keys(
        tiny_llama(),
        tokenizer__ggml__eot_token_id=value(U32, 2),
        tokenizer__ggml__eom_token_id=value(U32, 1),
        tokenizer__chat_template=text("{{ message }}<|im_end|>"),
    )

    assert facts_of(file).eos_token_ids == (1, 2, 4)


def test_an_end_of_turn_token_that_no_template_writes_is_an_ordinary_one(facts_of: Facts) -> None:
    """A base model may have it in its vocabulary and never mean it."""
    assert facts_of(tiny_llama()).eos_token_ids == (1,)


def test_an_id_outside_the_vocabulary_is_ignored_with_a_warning(
    facts_of: Facts, caplog: pytest.LogCaptureFixture
) -> None:
    """Some files write the largest number for "none"."""
    none = value(U32, 2**32 - 1)
    file = with_keys(
        tiny_llama(), tokenizer__ggml__eos_token_id=none, tokenizer__ggml__bos_token_id=none
    )

    with caplog.at_level(logging.WARNING):
        facts = facts_of(file)

    assert facts.eos_token_ids == ()
    assert facts.bos_token_id is None
    assert "the EOS id 4294967295 is not in the vocabulary" in caplog.text


def test_sampling_defaults_of_the_file_are_taken_over(facts_of: Facts) -> None:
    """By the names of our sampling parameters."""
    file = with_keys(
        tiny_llama(),
        general__sampling__temp=value(F32, 0.5),
        general__sampling__top_k=value(U32, 20),
        general__sampling__penalty_repeat=value(F32, 1.25),
    )

    expected = {"temperature": 0.5, "top_k": 20, "repetition_penalty": 1.25}
    assert facts_of(file).generation_defaults == expected


def test_the_type_of_unquantised_matrices_is_the_dtype(facts_of: Facts) -> None:
    """Vectors do not count: they are F32 in every file."""
    file = tiny_llama()
    for tensor in file.tensors:
        if len(tensor.dimensions) == 2:
            tensor.type = WeightType.BF16

    assert facts_of(file).dtype == "bfloat16"


REFUSED: dict[str, tuple[Callable[[], GgufBytes], type[Exception], str]] = {
    "another architecture": (
        lambda: tiny_llama("mamba2"),
        UnsupportedModelError,
        "'mamba2' is not supported. Supported: arcee, .*llama",
    ),
    "experts": (
        lambda: with_keys(tiny_llama("qwen3"), qwen3__expert_count=value(U32, 8)),
        UnsupportedModelError,
        "qwen3 with experts is not supported",
    ),
    "another rope scaling": (
        lambda: with_keys(tiny_llama(), llama__rope__scaling__type=text("longrope")),
        UnsupportedModelError,
        "'longrope' is not supported",
    ),
    "values of another size than keys": (
        lambda: with_keys(tiny_llama(), llama__attention__value_length=value(U32, 2)),
        UnsupportedModelError,
        "keys of 4 and values of 2",
    ),
    "slopes of another kind": (
        lambda: with_keys(
            tiny_llama("mpt"),
            mpt__attention__layer_norm_epsilon=value(F32, 1e-5),
            mpt__attention__max_alibi_bias=value(F32, 4.0),
        ),
        UnsupportedModelError,
        "max_alibi_bias is 4; supported: 8",
    ),
    "a sparse mixer of three": (
        lambda: with_keys(
            tiny_llama("phimoe"),
            phimoe__expert_count=value(U32, 8),
            phimoe__expert_used_count=value(U32, 3),
        ),
        CorruptFileError,
        "phimoe.expert_used_count must be 2, got 3",
    ),
    "no architecture": (
        lambda: without_key(tiny_llama(), "general.architecture"),
        CorruptFileError,
        "general.architecture is missing",
    ),
    "no layers": (
        lambda: without_key(tiny_llama(), "llama.block_count"),
        CorruptFileError,
        "llama.block_count is missing",
    ),
    "a billion layers": (
        lambda: with_keys(tiny_llama(), llama__block_count=value(U32, 10**9)),
        CorruptFileError,
        "llama.block_count must be from 1 to 4096",
    ),
    "a size in words": (
        lambda: with_keys(tiny_llama(), llama__embedding_length=text("8")),
        CorruptFileError,
        "llama.embedding_length must be a whole number, got '8'",
    ),
    "a size for each layer": (
        lambda: with_keys(tiny_llama(), llama__feed_forward_length=strings("16")),
        CorruptFileError,
        "llama.feed_forward_length must be a whole number, got a list of 1",
    ),
    "an epsilon of 0": (
        lambda: with_keys(tiny_llama(), llama__attention__layer_norm_rms_epsilon=value(F32, 0.0)),
        CorruptFileError,
        "must be above 0",
    ),
    "a base that is not a number": (
        lambda: with_keys(tiny_llama(), llama__rope__freq_base=value(F32, math.nan)),
        CorruptFileError,
        "finite",
    ),
    "heads that do not share KV heads": (
        lambda: with_keys(tiny_llama(), llama__attention__head_count_kv=value(U32, 4)),
        CorruptFileError,
        "2 attention heads cannot share 4 KV heads",
    ),
    "an odd rotary part": (
        lambda: with_keys(tiny_llama(), llama__rope__dimension_count=value(U32, 3)),
        CorruptFileError,
        "3 rotary dimensions",
    ),
    "a rotary part larger than a head": (
        lambda: with_keys(tiny_llama(), llama__rope__dimension_count=value(U32, 6)),
        CorruptFileError,
        "6 rotary dimensions in heads of 4",
    ),
    "a shrinking factor": (
        lambda: with_keys(tiny_llama(), llama__rope__scaling__factor=value(F32, 0.5)),
        CorruptFileError,
        "must be from 1 to",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_served_is_refused_with_the_key_or_the_choice(
    facts_of: Facts, case: str
) -> None:
    """Ours to support or the file's to repair: the message says which."""
    make, error, message = REFUSED[case]

    with pytest.raises(error, match=message):
        facts_of(make())


def test_a_file_without_an_embedding_table_is_refused(facts_of: Facts) -> None:
    """It also tells the size of the vocabulary."""
    file = tiny_llama()
    del file.tensors[0]

    with pytest.raises(CorruptFileError, match=r"token_embd\.weight is missing"):
        facts_of(file)


def test_an_encoder_of_a_pooling_that_we_lack_is_refused() -> None:
    """Rank is a head of its own, none is no vector."""
    sizes = {
        "general.architecture": "bert",
        "bert.embedding_length": 8,
        "bert.attention.head_count": 2,
        "bert.feed_forward_length": 16,
        "bert.block_count": 1,
        "bert.context_length": 32,
        "bert.attention.layer_norm_epsilon": 1e-12,
        "bert.pooling_type": 4,
    }
    tensors = {
        "token_embd.weight": tensor_of("token_embd.weight", (5, 8), [0.0] * 40),
        "position_embd.weight": tensor_of("position_embd.weight", (32, 8), [0.0] * 256),
    }

    with pytest.raises(UnsupportedModelError, match="pooling of type 4 is not supported"):
        facts_from_gguf(GgufMetadata(sizes, "file"), tensors, "file")
    made = facts_from_gguf(GgufMetadata(sizes | {"bert.pooling_type": 1}, "file"), tensors, "file")
    assert made.pooling is not None
    assert (made.pooling.method, made.num_segments, made.is_causal) == ("mean", 2, False)


@pytest.mark.parametrize("architecture", ["deepseek2", "gpt-oss", "llama4", "phimoe"])
def test_an_architecture_of_experts_without_experts_is_refused(
    facts_of: Facts, architecture: str
) -> None:
    """Its key may be missing or 0."""
    with pytest.raises(CorruptFileError, match=f"{architecture}.expert_count must be at least 1"):
        facts_of(with_keys(tiny_llama(architecture)))


def test_a_false_number_of_heads_or_elements_is_refused(facts_of: Facts) -> None:
    """Before tables of that size are made."""
    keys = {"llama__attention__key_length": value(U32, 2**30)}
    keys["llama__attention__value_length"] = value(U32, 2**30)

    with pytest.raises(CorruptFileError, match="2 heads of 1073741824 elements; at most"):
        facts_of(with_keys(tiny_llama(), **keys))
