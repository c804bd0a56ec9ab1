"""Sound little models in GGUF, as bytes, that are damaged by the tests of broken files.

Each has what others lack: many types of weights, experts, latent attention, kinds of vocabulary.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Mapping

from octavo.text.spelling import CHARACTER_OF_BYTE
from octavo.weights.checkpoint import WeightType
from octavo.weights.gguf_repack import REPACKED
from tests.support.gguf_bytes import (
    ARRAY,
    F32,
    I32,
    U32,
    GgufBytes,
    TensorBytes,
    array,
    strings,
    text,
    value,
)
from tests.support.random_weights import random_repacked_rows, random_rows

Keys = list[tuple[str | bytes, tuple[int, bytes]]]
Shapes = Mapping[str, tuple[tuple[int, ...], int]]  # name -> (rows first, type)
_F32, _F16, _Q8_0 = WeightType.F32, WeightType.F16, WeightType.Q8_0
_IQ2_XXS = next(number for number, one in REPACKED.items() if one.name == "IQ2_XXS")
_SPACE = "\u2581"


def _keys(architecture: str, sizes: Mapping[str, float]) -> Keys:
    rows: list[tuple[str | bytes, tuple[int, bytes]]] = [
        ("general.architecture", text(architecture))
    ]
    for key, number in sizes.items():
        kind = F32 if isinstance(number, float) else U32
        rows.append((f"{architecture}.{key}", value(kind, number)))
    return rows


def _tensors(shapes: Shapes) -> list[TensorBytes]:
    return [
        TensorBytes(f"{name}.weight", shape[::-1], type, data=_rows(shape, type, seed))
        for seed, (name, (shape, type)) in enumerate(shapes.items())
    ]


def _rows(shape: tuple[int, ...], type: int, seed: int) -> bytes:
    num_rows, num_cols = math.prod(shape[:-1]), shape[-1]
    if type in REPACKED:
        return random_repacked_rows(type, num_rows, num_cols, seed).tobytes()
    if len(shape) == 1:
        source = random.Random(seed)
        return struct.pack(f"<{num_cols}f", *(source.uniform(0.8, 1.2) for _ in range(num_cols)))
    return random_rows(WeightType(type), num_rows, num_cols, seed).tobytes()


def _byte_level() -> Keys:
    """A BPE of all bytes and a few merges: 264 tokens."""
    merges = [("t", "h"), ("th", "e"), ("i", "n"), ("a", "n"), ("an", "d")]
    tokens = [*CHARACTER_OF_BYTE, *(a + b for a, b in merges), "<s>", "</s>", "<|im_end|>"]
    kinds = [1] * (len(tokens) - 3) + [3] * 3
    return [
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.pre", text("llama-bpe")),
        ("tokenizer.ggml.tokens", strings(*tokens)),
        ("tokenizer.ggml.token_type", (ARRAY, array(I32, [struct.pack("<i", k) for k in kinds]))),
        ("tokenizer.ggml.merges", strings(*(f"{a} {b}" for a, b in merges))),
        ("tokenizer.ggml.bos_token_id", value(U32, len(tokens) - 3)),
        ("tokenizer.ggml.eos_token_id", value(U32, len(tokens) - 2)),
        ("tokenizer.chat_template", text("{{ messages[0].content }}<|im_end|>")),
    ]


def _sentencepiece() -> Keys:
    """SentencePiece's unknown, begin, end, 256 bytes and some pieces: 267 tokens."""
    pieces = ["t", "h", "e", _SPACE, "th", "the", f"{_SPACE}the", "a"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    kinds = [2, 3, 3, *[6] * 256, *[1] * len(pieces)]
    scores = [0.0] * 259 + [-float(i) for i in range(len(pieces))]
    return [
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.tokens", strings(*tokens)),
        ("tokenizer.ggml.scores", (ARRAY, array(F32, [struct.pack("<f", s) for s in scores]))),
        ("tokenizer.ggml.token_type", (ARRAY, array(I32, [struct.pack("<i", k) for k in kinds]))),
        ("tokenizer.ggml.bos_token_id", value(U32, 1)),
        ("tokenizer.ggml.eos_token_id", value(U32, 2)),
        ("tokenizer.ggml.unknown_token_id", value(U32, 0)),
    ]


_SIZES: dict[str, float] = {
    "block_count": 1,
    "context_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-5,
}


def _many_types() -> GgufBytes:
    """Llama of one layer; each matrix has a type of its own."""
    return GgufBytes(
        metadata=_keys("llama", _SIZES | {"embedding_length": 256, "feed_forward_length": 256})
        + _byte_level(),
        tensors=_tensors(
            {
                "token_embd": ((264, 256), _Q8_0),
                "output_norm": ((256,), _F32),
                "output": ((264, 256), WeightType.BF16),
                "blk.0.attn_norm": ((256,), _F32),
                "blk.0.attn_q": ((256, 256), WeightType.Q4_K),
                "blk.0.attn_k": ((128, 256), WeightType.Q6_K),
                "blk.0.attn_v": ((128, 256), WeightType.Q5_K),
                "blk.0.attn_output": ((256, 256), WeightType.IQ4_XS),
                "blk.0.ffn_norm": ((256,), _F32),
                "blk.0.ffn_gate": ((256, 256), WeightType.Q2_K),
                "blk.0.ffn_up": ((256, 256), WeightType.Q3_K),
                "blk.0.ffn_down": ((256, 256), _IQ2_XXS),
            }
        ),
    )


def _experts() -> GgufBytes:
    """Mixtral of two layers, with a SentencePiece vocabulary and the divisors of Llama 3's rope."""
    sizes: dict[str, float] = _SIZES | {
        "block_count": 2,
        "embedding_length": 64,
        "feed_forward_length": 32,
        "expert_count": 4,
        "expert_used_count": 2,
        "rope.freq_base": 5e5,
        "rope.dimension_count": 16,
    }
    shapes: dict[str, tuple[tuple[int, ...], int]] = {
        "token_embd": ((267, 64), WeightType.Q4_1),
        "output_norm": ((64,), _F32),
        "rope_freqs": ((8,), _F32),
    }
    for layer in range(2):
        name = f"blk.{layer}"
        shapes |= {
            f"{name}.attn_norm": ((64,), _F32),
            f"{name}.attn_q": ((64, 64), WeightType.Q5_0),
            f"{name}.attn_k": ((32, 64), WeightType.Q5_1),
            f"{name}.attn_v": ((32, 64), WeightType.IQ4_NL),
            f"{name}.attn_output": ((64, 64), WeightType.Q4_0),
            f"{name}.ffn_norm": ((64,), _F32),
            f"{name}.ffn_gate_inp": ((4, 64), _F32),
            f"{name}.ffn_gate_exps": ((4, 32, 64), WeightType.MXFP4),
            f"{name}.ffn_up_exps": ((4, 32, 64), WeightType.MXFP4),
            f"{name}.ffn_down_exps": ((4, 64, 32), _Q8_0),
        }
    return GgufBytes(metadata=_keys("llama", sizes) + _sentencepiece(), tensors=_tensors(shapes))


def _latent() -> GgufBytes:
    """DeepSeek V2 of two layers: a dense one, and one with experts and a shared one."""
    sizes: dict[str, float] = _SIZES | {
        "block_count": 2,
        "embedding_length": 64,
        "feed_forward_length": 64,
        "attention.head_count_kv": 1,
        "attention.kv_lora_rank": 24,
        "attention.key_length": 32,
        "attention.value_length": 24,
        "attention.key_length_mla": 20,
        "attention.value_length_mla": 10,
        "rope.dimension_count": 8,
        "expert_count": 4,
        "expert_used_count": 2,
        "expert_feed_forward_length": 32,
        "expert_group_count": 2,
        "expert_group_used_count": 1,
        "leading_dense_block_count": 1,
    }
    shapes: dict[str, tuple[tuple[int, ...], int]] = {
        "token_embd": ((264, 64), _F16),
        "output_norm": ((64,), _F32),
        "output": ((264, 64), _F16),
    }
    for layer in range(2):
        name = f"blk.{layer}"
        shapes |= {
            f"{name}.attn_norm": ((64,), _F32),
            f"{name}.attn_q": ((80, 64), _F16),
            f"{name}.attn_kv_a_mqa": ((32, 64), _F16),
            f"{name}.attn_kv_a_norm": ((24,), _F32),
            f"{name}.attn_k_b": ((4, 24, 12), _F16),
            f"{name}.attn_v_b": ((4, 10, 24), _F16),
            f"{name}.attn_output": ((64, 40), _F16),
            f"{name}.ffn_norm": ((64,), _F32),
        }
    shapes |= {
        "blk.0.ffn_gate": ((64, 64), _F16),
        "blk.0.ffn_up": ((64, 64), _F16),
        "blk.0.ffn_down": ((64, 64), _F16),
        "blk.1.ffn_gate_inp": ((4, 64), _F32),
        "blk.1.ffn_gate_exps": ((4, 32, 64), _F16),
        "blk.1.ffn_up_exps": ((4, 32, 64), _F16),
        "blk.1.ffn_down_exps": ((4, 64, 32), _F16),
        "blk.1.ffn_gate_shexp": ((32, 64), _F16),
        "blk.1.ffn_up_shexp": ((32, 64), _F16),
        "blk.1.ffn_down_shexp": ((64, 32), _F16),
    }
    return GgufBytes(metadata=_keys("deepseek2", sizes) + _byte_level(), tensors=_tensors(shapes))


GGUF_BASES = {"many-types": _many_types(), "experts": _experts(), "latent": _latent()}
