"""GGUF files byte by byte, so that a test can also write what no honest writer would.

`GgufBytes` holds the parts of a file; `build` puts them together. The oracle for honest files is
the package `gguf`; this one exists for the others.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from pathlib import Path

from octavo.weights.checkpoint import WeightType

U8, I32, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 5, 4, 6, 7, 8, 9, 10
FORMATS = {U8: "<B", I32: "<i", U32: "<I", F32: "<f", BOOL: "<?", U64: "<Q"}


def string(text: str | bytes) -> bytes:
    """Length and bytes."""
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def array(item_type: int, items: list[bytes], *, count: int | None = None) -> bytes:
    """An array value; `count` may lie about the number of items."""
    claimed = len(items) if count is None else count
    return struct.pack("<IQ", item_type, claimed) + b"".join(items)


def strings(*texts: str | bytes) -> tuple[int, bytes]:
    """An array of strings as a metadata value."""
    return ARRAY, array(STRING, [string(text) for text in texts])


def value(value_type: int, number: float) -> tuple[int, bytes]:
    """A number as a metadata value."""
    return value_type, struct.pack(FORMATS[value_type], number)


def text(content: str) -> tuple[int, bytes]:
    """A string as a metadata value."""
    return STRING, string(content)


@dataclass
class TensorBytes:
    """One row of the tensor table. `offset` None: behind the tensor before it."""

    name: str | bytes
    dimensions: tuple[int, ...]  # fastest first
    type: int = WeightType.F32
    offset: int | None = None
    data: bytes | None = None  # None: zeros of the right size


@dataclass
class GgufBytes:
    """The parts of a file; every field may be given a lie."""

    metadata: list[tuple[str | bytes, tuple[int, bytes]]] = field(default_factory=list)
    tensors: list[TensorBytes] = field(default_factory=list)
    magic: bytes = b"GGUF"
    version: int = 3
    num_tensors: int | None = None
    num_keys: int | None = None
    alignment: int = 32
    tail: bytes = b""

    def build(self) -> bytes:
        """The file."""
        num_tensors = len(self.tensors) if self.num_tensors is None else self.num_tensors
        num_keys = len(self.metadata) if self.num_keys is None else self.num_keys
        head = self.magic + struct.pack("<IQQ", self.version, num_tensors, num_keys)
        for key, (value_type, raw) in self.metadata:
            head += string(key) + struct.pack("<I", value_type) + raw
        data = b""
        for tensor in self.tensors:
            offset = len(data) if tensor.offset is None else tensor.offset
            head += string(tensor.name) + struct.pack("<I", len(tensor.dimensions))
            head += struct.pack(f"<{len(tensor.dimensions)}Q", *tensor.dimensions)
            head += struct.pack("<IQ", tensor.type, offset)
            raw = zeros(tensor) if tensor.data is None else tensor.data
            data += raw + bytes(-len(raw) % self.alignment)
        return head + bytes(-len(head) % self.alignment) + data + self.tail

    def write(self, path: Path) -> Path:
        """The file, written."""
        path.write_bytes(self.build())
        return path


def zeros(tensor: TensorBytes) -> bytes:
    """As many zeros as the tensor has bytes; none where its claims make no sense."""
    try:
        weight_type = WeightType(tensor.type)
    except ValueError:
        return b""
    num_elements = math.prod(tensor.dimensions)
    if num_elements % weight_type.block_elements or num_elements > 1 << 24:
        return b""
    return bytes(weight_type.num_bytes(num_elements))


def tiny_llama(architecture: str = "llama") -> GgufBytes:
    """An honest file of one layer: hidden 8, 2 heads of 4, 1 KV head, 5 tokens."""
    sizes = {
        "block_count": 1,
        "context_length": 64,
        "embedding_length": 8,
        "feed_forward_length": 16,
        "attention.head_count": 2,
        "attention.head_count_kv": 1,
    }
    metadata: list[tuple[str | bytes, tuple[int, bytes]]] = [
        ("general.architecture", text(architecture)),
        *((f"{architecture}.{key}", value(U32, number)) for key, number in sizes.items()),
        (f"{architecture}.attention.layer_norm_rms_epsilon", value(F32, 1e-5)),
        ("tokenizer.ggml.model", text("gpt2")),
        ("tokenizer.ggml.tokens", strings("<s>", "</s>", "a", "b", "<|im_end|>")),
        ("tokenizer.ggml.token_type", (ARRAY, array(I32, [struct.pack("<i", 1)] * 5))),
        ("tokenizer.ggml.bos_token_id", value(U32, 0)),
        ("tokenizer.ggml.eos_token_id", value(U32, 1)),
    ]
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (8, 5),
        "output_norm": (8,),
        "blk.0.attn_norm": (8,),
        "blk.0.attn_q": (8, 8),
        "blk.0.attn_k": (8, 4),
        "blk.0.attn_v": (8, 4),
        "blk.0.attn_output": (8, 8),
        "blk.0.ffn_norm": (8,),
        "blk.0.ffn_gate": (8, 16),
        "blk.0.ffn_up": (8, 16),
        "blk.0.ffn_down": (16, 8),
    }
    tensors = [TensorBytes(f"{name}.weight", dimensions) for name, dimensions in shapes.items()]
    return GgufBytes(metadata=metadata, tensors=tensors)


def with_keys(file: GgufBytes, **values: tuple[int, bytes]) -> GgufBytes:
    """The file with further keys; `__` stands for a dot. A known key is replaced."""
    named = {key.replace("__", "."): value for key, value in values.items()}
    file.metadata = [(key, value) for key, value in file.metadata if key not in named]
    file.metadata += list(named.items())
    return file


def without_key(file: GgufBytes, name: str) -> GgufBytes:
    """The file without a key."""
    file.metadata = [(key, value) for key, value in file.metadata if key != name]
    return file
