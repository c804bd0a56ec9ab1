"""Signatures of the native extension (csrc/bindings.cpp).

Everything wrong with an argument raises ValueError. A `Buffer` is any object with the buffer
protocol that is contiguous; its elements are float32 unless stated otherwise. Types are the numbers
of `weights.checkpoint.WeightType`, those of KV pools `ops.kv_types.KvType`.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from octavo.contracts.grammar import Mask

Buffer = object  # before Python 3.12 a type checker cannot tell who has the buffer protocol
TokenLogprobsTuple = tuple[list[int], list[float], int]  # token ids, logprobs, rank
RowTuple = tuple[int, int, int, Sequence[int]]  # first_token, num_tokens, context_len, block_ids

class Kernels:
    """The kernels of one instruction set."""

    @property
    def name(self) -> str: ...

def available_isas() -> list[str]:
    """Instruction sets that work here, best first; "scalar" is always the last."""

def find_kernels(isa: str) -> Kernels:
    """The kernels of `isa`; an empty name means the best available."""

class ThreadPool:
    """A team of compute threads; the caller is one of them."""

    def __init__(self, num_threads: int, pin: bool) -> None: ...
    @property
    def num_threads(self) -> int: ...

class Weights:
    """Packed matrices and float32 vectors, by the ids that the `add_` methods return."""

    def __init__(self) -> None: ...
    def add_matrix(self, cols: int, sources: Sequence[tuple[int, int]]) -> int:
        """A matrix of stacked tensors: (type in memory, rows) of each."""

    def allocate(self) -> None:
        """Make the memory of all matrices; once, after the last `add_matrix`."""

    def fill(
        self,
        threads: ThreadPool,
        matrix: int,
        source: int,
        type: int,
        data: Buffer,
        interleaved_heads: int = 0,
        first_row: int = 0,
    ) -> None:
        """Pack a tensor, or rows of it, from its bytes in a model file; all threads, no GIL.

        A piece begins at a multiple of 8 rows and ends at one or with the tensor. ValueError also
        for numbers and scales that are not finite.
        """

    def fill_all(
        self, threads: ThreadPool, pieces: Sequence[tuple[int, int, int, Buffer, int, int]]
    ) -> tuple[int, str]:
        """The same for many pieces, each the arguments of `fill`: how many of them are in, and why
        the next one is not; empty where all are.
        """

    def set_bias(self, matrix: int, values: Buffer) -> None: ...
    def add_vector(self, values: Buffer) -> int: ...
    def add_order(self, columns: Sequence[int]) -> int:
        """An order of columns for `Program.reorder`."""

    @property
    def num_bytes(self) -> int:
        """Of everything declared, whether allocated yet or not."""

class PackedInts:
    """A matrix of numbers of a few bits in words; csrc/convert.hpp has the meaning.

    `shape`: rows and columns, `strides`: words from one row and column to the next. `packs_rows`:
    neighbours in a word are of one column. `order`: of numbers in a word, 0 natural, 1 AWQ's,
    2 upper half of a byte first. ValueError where the data are too short, or for another order.
    """

    def __init__(
        self,
        data: Buffer,
        bits: int,
        word_bits: int,
        shape: tuple[int, int],
        strides: tuple[int, int],
        packs_rows: bool = False,
        order: int = 0,
        is_signed: bool = False,
    ) -> None: ...
    @property
    def data(self) -> memoryview: ...
    @property
    def layout(self) -> tuple[object, ...]:
        """All other arguments: what the data mean."""

class Scales:
    """A table of scales; `shared`: rows of the matrix and columns that share one."""

    def __init__(
        self,
        data: Buffer,
        type: int,
        shape: tuple[int, int],
        strides: tuple[int, int],
        shared: tuple[int, int],
        factor: float = 1.0,
    ) -> None: ...
    @property
    def data(self) -> memoryview: ...
    @property
    def layout(self) -> tuple[object, ...]:
        """All other arguments: what the data mean."""

def convert_rows(
    to: int,
    codes: PackedInts,
    scales: Scales,
    zeros: PackedInts | None,
    zero_point: int,
    columns: Sequence[int],
    groups: Sequence[int],
    rows: tuple[int, int],
) -> bytes:
    """Rows [first, end) as the type `to` stores them. ValueError for tables that do not fit."""

def quantise_rows(type: int, data: Buffer, cols: int, to: int) -> bytes:
    """Float rows rounded to the type `to`. ValueError for numbers that are not finite."""

def int_tables(
    type: int,
    data: Buffer,
    cols: int,
    bits: int,
    group: int,
    row_factors: Buffer = b"",
    column_factors: Buffer = b"",
) -> tuple[bytes, bytes, bytes]:
    """Float rows as codes in words, float16 scales, and zero points (4 bits only).

    A number is multiplied by the factors of its row and column first (float32; empty: 1).
    ValueError for sizes that do not fit and for numbers that are not finite.
    """

def rounding_error(
    type: int,
    data: Buffer,
    cols: int,
    bits: int,
    group: int,
    column_factors: Buffer,
    weights: Buffer,
    step: int = 1,
) -> float:
    """Squared error of every `step`-th row, factors taken out, each times its column's weight."""

def column_sums(data: Buffer, cols: int) -> tuple[list[float], list[float]]:
    """Of float32 rows: the sum of magnitudes and the sum of squares of each column."""

def float_rows(type: int, data: Buffer, cols: int) -> bytes:
    """float32 numbers of rows of any weight type.

    Raises ValueError where one is not finite.
    """

def repack_blocks(ggml_type: int, data: Buffer, factor: float = 1.0) -> bytes:
    """Blocks of a GGUF type without kernels of its own as INT8_K, those of NVFP4 as FP4_16.

    Their scales are multiplied by `factor`. ValueError for another type.
    """

def nested_scales(codes: Buffer, map: Buffer, scales: Buffer, block: int, offset: float) -> bytes:
    """float32 map[code] * scales[i // block] + offset for each code."""

class KvPool:
    """KV blocks of all layers; a layer is (num_kv_heads, head_dim).

    Layer i of a group lies in lane i of the group's blocks. No groups: one that has all layers.
    """

    def __init__(
        self,
        type: int,
        num_blocks: int,
        block_size: int,
        layers: Sequence[tuple[int, int]],
        groups: Sequence[Sequence[int]] = (),
    ) -> None: ...
    @property
    def num_blocks(self) -> int: ...
    @property
    def block_size(self) -> int: ...
    @staticmethod
    def bytes_per_block(
        type: int,
        block_size: int,
        layers: Sequence[tuple[int, int]],
        groups: Sequence[Sequence[int]] = (),
    ) -> int:
        """Of one block over all lanes."""

class HostPool:
    """Slots outside the KV pool that hold whole blocks.

    They lie in memory, or in a file without a name in `folder`. Raises RuntimeError when such a
    file cannot be had.
    """

    def __init__(self, num_slots: int, slot_bytes: int, folder: str) -> None: ...
    @property
    def num_slots(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def slot(self, index: int) -> memoryview:
        """The writable bytes of a slot; they keep the pool alive."""

class Rows(Enum):
    """What the rows of a buffer stand for."""

    TOKENS = 0
    WANTED = 1

class Activation(Enum):
    SILU = 0
    GELU_TANH = 1
    GELU = 2
    RELU = 3
    SQUARED_RELU = 4
    TANH = 5
    SIGMOID = 6
    CLAMPED_SWIGLU = 7
    HARDTANH = 8

class Rounding(Enum):
    """What activations are rounded to before they are multiplied; see csrc/types.hpp."""

    INT8 = 0
    BFLOAT16 = 1

class Scoring(Enum):
    """What a router chooses experts by; see csrc/router.hpp."""

    SOFTMAX = 0
    SOFTMAX_CHOSEN = 1
    SIGMOID = 2
    SCORE = 3
    SPARSE_MIXER = 4

class View:
    """Some columns of a buffer: row r starts at float `offset + r * stride` of the arena."""

    def __init__(self, offset: int, stride: int, width: int) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def stride(self) -> int: ...
    @property
    def width(self) -> int: ...

def rounded_row_floats(rounding: Rounding, cols: int) -> int:
    """Width, counted in float32, of a row of `cols` rounded activations."""

class Program:
    """A flat list of operations; each method adds one and checks it.

    `rows` says over which rows it runs, `barrier` that all threads must meet before it.
    """

    def __init__(
        self,
        weights: Weights,
        arena_floats: int,
        max_tokens: int,
        wanted_rows: int,
        rounding: Rounding = Rounding.INT8,
    ) -> None: ...
    def embed(self, rows: Rows, barrier: bool, table: int, scale: float, out: View) -> None: ...
    def embed_positions(self, rows: Rows, barrier: bool, table: int, out: View) -> None: ...
    def embed_segments(self, rows: Rows, barrier: bool, table: int, out: View) -> None: ...
    def round_rows(self, rows: Rows, barrier: bool, x: View, out: View) -> None: ...
    def linear(
        self,
        rows: Rows,
        barrier: bool,
        matrix: int,
        x: View | None,
        x_rounded: View | None,
        out: View,
    ) -> None:
        """Parts of a type that takes the rounding read `x_rounded`, all others `x`."""

    def norm(
        self, rows: Rows, barrier: bool, weight: int, eps: float, x: View, out: View
    ) -> None: ...
    def layer_norm(
        self, rows: Rows, barrier: bool, weight: int, bias: int, eps: float, x: View, out: View
    ) -> None:
        """`weight` and `bias` are ids of vectors, -1 for none."""

    def rope_table(
        self, rows: Rows, barrier: bool, inv_freq: Sequence[float], factor: float, out: View
    ) -> None: ...
    def position_factors(
        self, rows: Rows, barrier: bool, period: float, weight: float, out: View
    ) -> None: ...
    def rotary(
        self, rows: Rows, barrier: bool, x: View, table: View, head_dim: int, out: View
    ) -> None: ...
    def attention(
        self,
        rows: Rows,
        barrier: bool,
        layer: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int,
        soft_cap: float,
        is_chunked: bool,
        is_causal: bool,
        sinks: int,
        slopes: Sequence[float],
        q: View,
        k: View,
        v: View,
        out: View,
    ) -> None:
        """`sinks` is the id of a vector, -1 for none."""

    def gated(
        self, rows: Rows, barrier: bool, activation: Activation, x: View, out: View
    ) -> None: ...
    def activation(
        self, rows: Rows, barrier: bool, activation: Activation, x: View, out: View
    ) -> None: ...
    def add(self, rows: Rows, barrier: bool, a: View, b: View, out: View) -> None: ...
    def scale(self, rows: Rows, barrier: bool, factor: float, x: View, out: View) -> None: ...
    def soft_cap(self, rows: Rows, barrier: bool, cap: float, x: View, out: View) -> None: ...
    def reorder(self, rows: Rows, barrier: bool, order: int, x: View, out: View) -> None: ...
    def wanted_rows(self, rows: Rows, barrier: bool, x: View, out: View) -> None: ...
    def route(
        self,
        rows: Rows,
        barrier: bool,
        num_experts: int,
        num_chosen: int,
        scoring: Scoring,
        normalises: bool,
        scale: float,
        num_groups: int,
        num_chosen_groups: int,
        group_best: int,
        tolerance: float,
        correction: int,
        scores: View,
        out: View,
    ) -> None:
        """`correction` is the id of a vector, -1 for none."""

    def experts(
        self,
        rows: Rows,
        barrier: bool,
        gate_up: Sequence[int],
        down: Sequence[int],
        activation: Activation,
        is_weighted: bool,
        inner_rounded: bool,
        x: View | None,
        x_rounded: View | None,
        routing: View,
        out: View,
    ) -> None:
        """Parts of `gate_up` of a type that takes the rounding read `x_rounded`, all others `x`."""

    def head_products(
        self, rows: Rows, barrier: bool, heads: Sequence[int], x: View, out: View
    ) -> None:
        """`heads`: matrix of each head."""

    def join_heads(
        self,
        rows: Rows,
        barrier: bool,
        num_heads: int,
        pieces: Sequence[tuple[View, int, int]],
        out: View,
    ) -> None:
        """A piece is (buffer, heads that lie in it, columns of each head in the result)."""

    def multiply_rows(
        self, rows: Rows, barrier: bool, x: View, factors: View, out: View
    ) -> None: ...
    def set_logits(self, logits: View) -> None: ...

class Forward:
    """A program with its working memory, threads and KV pool."""

    def __init__(
        self,
        program: Program,
        kernels: Kernels,
        threads: ThreadPool,
        kv: KvPool,
        max_rows: int,
        max_len: int,
    ) -> None: ...
    @staticmethod
    def workspace_bytes(
        program: Program, kernels: Kernels, num_threads: int, max_rows: int, max_len: int
    ) -> int: ...
    def run(
        self,
        token_ids: Sequence[int],
        positions: Sequence[int],
        rows: Sequence[RowTuple],
        wanted: Sequence[int],
        segments: Sequence[int] = (),
        wanted_first: Sequence[int] = (),
    ) -> None:
        """Run all operations over a batch made by hand; nothing is sampled."""

    def write(self, view: View, rows: Rows, values: Buffer) -> None:
        """Fill the first rows of a buffer."""

    def read(self, view: View, rows: Rows, count: int) -> bytes:
        """The first `count` rows of a buffer as float32."""

class SamplingSpec:
    """The fields of `contracts.step.SamplingSpec`, same names and defaults."""

    def __init__(self) -> None: ...
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    bias_token_ids: list[int]
    bias_values: list[float]
    allowed_token_ids: list[int]
    bad_words: list[list[int]]
    min_tokens: int
    stop_token_ids: list[int]
    num_logprobs: int
    num_prompt_logprobs: int
    logprob_token_ids: list[int]

class RowSampler:
    """The sampling state of one row."""

    def __init__(
        self, spec: SamplingSpec, token_ids: Sequence[int], num_prompt: int, vocab_size: int
    ) -> None: ...
    def sample(
        self,
        kernels: Kernels,
        logits: Buffer,
        token_ids: Sequence[int],
        mask: bytes | None = None,
        row: int = -1,
        stages: int = 0,
        scratch: Buffer | None = None,
        process: Callable[[int, int], str | None] | None = None,
    ) -> tuple[int, TokenLogprobsTuple | None]:
        """Draw the token after `token_ids`. `logits` must be writable and is scratch afterwards.

        Bit `i % 8` of byte `i // 8` of the mask says whether token `i` may be drawn. `process` is
        called with `row` at each of `stages`; see `Session.step`.

        Raises RuntimeError when a logit is NaN or no token is left.
        """

    def append(self, token_id: int) -> None:
        """Note a token that was appended to the row."""

    def replace(self, token_id: int, other_id: int) -> None:
        """Note that the token appended last, `token_id`, became another one."""

def top_logprobs(kernels: Kernels, logits: Buffer, token_id: int, count: int) -> TokenLogprobsTuple:
    """Raw log-probabilities of `token_id` and the `count` best."""

class Pooling(Enum):
    NONE = 0
    FIRST = 1
    LAST = 2
    MEAN = 3
    ALL = 4

class NewRow:
    """The fields of `contracts.step.NewRow` that the session needs."""

    def __init__(
        self,
        row: int,
        token_ids: Sequence[int],
        num_prompt_tokens: int,
        num_computed_tokens: int,
        block_ids: Sequence[Sequence[int]],
        sampling: SamplingSpec,
        twin_row: int,
        pooling: Pooling = ...,
        second_segment: int = -1,
    ) -> None: ...

class Session:
    """The rows of one engine and the steps over them."""

    def __init__(
        self,
        forward: Forward,
        host: HostPool | None,
        max_rows: int,
        max_len: int,
        has_idle_core: bool,
    ) -> None: ...
    def step(
        self,
        freed_rows: list[int],
        new_rows: list[NewRow],
        table_rows: list[int],
        table_groups: list[int],
        table_places: list[int],
        table_block_ids: list[int],
        replaced_rows: list[int],
        replaced_token_ids: list[int],
        swap_out_from: list[int],
        swap_out_to: list[int],
        swap_in_from: list[int],
        swap_in_to: list[int],
        copy_from: list[int],
        copy_to: list[int],
        rows: list[int],
        num_tokens: list[int],
        samples: list[bool],
        mask_rows: list[int],
        masks: list[Mask],
        draft_rows: list[int],
        draft_token_ids: list[list[int]],
        processed_rows: list[int],
        processed_stages: list[int],
        scratch: Buffer | None,
        process: Callable[[int, int], str | None] | None,
    ) -> tuple[
        list[int],
        list[int],
        list[tuple[int, TokenLogprobsTuple]],
        list[tuple[int, TokenLogprobsTuple]],
        list[tuple[int, bytes]],
        list[tuple[int, str]],
        float,
        float,
        float,
    ]:
        """Run one step without the GIL.

        `process(row, stage)` works on the logits in `scratch`, float32 [vocab_size], in the thread
        of the caller; None is success, a text is what went wrong with the row. Stages are bits: 1
        before penalties, 2 after temperature and min_p.

        Returns sampled ids, how many drafts were accepted of each row with drafts, logprobs by row
        (several for a row with accepted drafts), prompt logprobs by row, vectors by row (float32),
        errors by row, seconds, those of them that swaps took, and those that sampling took.
        Raises ValueError when the plan contradicts the rows; nothing was computed then.
        """

def stored_size(stored: Buffer, count: int) -> int:
    """Bytes that `count` strings claim to take, each its length (u64) and its bytes.

    -1 where the length of one lies beyond the end. The last string may reach beyond it.
    """

def stored_strings(stored: Buffer) -> list[str]:
    """All strings of such a list up to the first that is not UTF-8."""

def stored_pairs(stored: Buffer) -> list[tuple[str, str]]:
    """The same, each cut at its first space, up to the first that is no two words."""

class SentencePiece:
    """BPE by score over tokens stored as (length u64, UTF-8 bytes) each, which are not copied.

    `kinds` are int32 (`text.gguf_tokenizer.TokenKind`). `unknown` may be -1.
    """

    def __init__(
        self,
        stored: Buffer,
        kinds: Buffer,
        scores: Buffer,
        space: str,
        adds_space: bool,
        unknown: int,
    ) -> None: ...
    @property
    def size(self) -> int: ...
    def encode(self, text: bytes) -> list[int]:
        """Ids of a text in UTF-8, without the GIL."""

    def token(self, id: int) -> bytes:
        """Empty for a token without a text."""

    def find(self, token: bytes) -> int:
        """-1 where there is no such token."""
