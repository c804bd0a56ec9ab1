"""ModelFacts: what a checkpoint says about itself, in neutral words.

Filled by `weights/hf_config.py` from config.json and by `weights/gguf_facts.py` from GGUF keys; the
model files read nothing else. Names follow Hugging Face's where it has one word for a thing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

RopeScaling = Literal["default", "linear", "dynamic", "yarn", "llama3", "longrope"]
HiddenAct = Literal["silu", "gelu_tanh", "gelu", "relu", "relu2"]
PoolingMethod = Literal["first", "last", "mean"]
PoolingTask = Literal["embed", "classify"]
ScoreActivation = Literal["softmax", "sigmoid", "none"]
Scoring = Literal["softmax", "softmax_chosen", "sigmoid", "score", "sparse_mixer"]
StateKind = Literal["mamba", "mamba2", "delta"]
NormKind = Literal["rms", "layer", "layer_without_weight"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeFacts:
    """Rotary position embedding: base and scaling, every number that any kind of scaling uses."""

    theta: float = 10000.0
    rotary_dim: int  # leading part of each head that is rotated; 0: no rotary embedding
    scaling: RopeScaling = "default"
    factor: float = 1.0
    original_max_position: int = 0  # context before scaling; 0 where the kind does not use it
    attention_factor: float | None = None  # None: the kind's own formula
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    mscale: float = 0.0  # yarn (DeepSeek form); 0 means absent
    mscale_all_dim: float = 0.0  # yarn (DeepSeek form); 0 means absent
    truncate: bool = True  # yarn
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    short_factor: tuple[float, ...] = ()  # longrope
    long_factor: tuple[float, ...] = ()  # longrope
    inv_freq_divisors: tuple[
        float, ...
    ] = ()  # GGUF `rope_freqs.weight`: divides inv_freq, replaces llama3's formula


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseFacts:
    """A small layer on a pooled vector: `norm(act(x W + b))`."""

    name: str  # of its weight
    out_features: int
    bias: bool = True
    activation: HiddenAct | Literal["tanh"] | None = None
    norm: str = ""  # name of its norm; empty: none


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingFacts:
    """How a model turns a prompt into a vector: an embedding, or scores of labels."""

    task: PoolingTask = "embed"
    method: PoolingMethod = "last"  # of which tokens
    layers: tuple[DenseFacts, ...] = ()  # after it
    normalize: bool = True  # embeddings are made one unit long
    labels: tuple[str, ...] = ()  # of a classifier, in order
    # Of a classifier's scores: softmax over the labels, or each for itself through sigmoid.
    activation: ScoreActivation = "softmax"
    # Widths to which embeddings may be cut (Kusupati et al. 2022): these, or any where it is None
    dimensions: tuple[int, ...] | None = ()
    of_tokens: bool = False  # a request that names no task wants a vector of each token


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeFacts:
    """A mixture of experts: what routes to them, and their shape."""

    num_experts: int
    num_chosen: int  # experts of a token
    intermediate_size: int  # of one expert
    layers: tuple[int, ...]  # that have experts; the others have an MLP
    scoring: Scoring = "softmax"  # see `ops.ops.RouterSpec`, as for the following ones
    normalises: bool = False
    scale: float = 1.0
    num_groups: int = 1
    num_chosen_groups: int = 1
    group_best: int = 1
    tolerance: float = 0.0
    has_correction: bool = False  # a vector is added to what experts are chosen by
    router_bias: bool = False
    expert_bias: bool = False
    activation: Literal["clamped_swiglu"] | None = None  # of experts; None: `hidden_act`
    weighs_input: bool = (
        False  # the sigmoid of the score multiplies what goes in, not what comes out
    )
    shared_size: int = 0  # inner columns of an expert that all tokens use; 0: there is none
    has_shared_gate: bool = False  # how much it counts is decided for each token


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentFacts:
    """Attention of which one latent vector for each token is cached (DeepSeek-AI 2024)."""

    q_rank: int  # width of a latent of the queries; 0: they have none
    kv_rank: int  # width of the latent of keys and values
    nope_dim: int  # of each head's key: what comes of the latent
    rope_dim: int  # what is rotated, shared by all heads
    value_dim: int  # of each head's value


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFacts:
    """Layers that carry a state from token to token, instead of keys and values.

    mamba: selective state spaces (Gu and Dao 2023), of one column a head. mamba2: one decay for all
    columns of a head (Dao and Gu 2024). delta: the gated delta rule (Yang et al. 2024).
    """

    kind: StateKind
    layers: tuple[int, ...]
    num_heads: int
    head_dim: int  # columns of a head
    state_size: int  # numbers that a head keeps for each column; delta: width of a key
    num_groups: int = 1  # heads of a group share what goes in and comes out; delta: a key
    conv_width: int = 4  # tokens that the short convolution sees, the current one included
    conv_bias: bool = False
    projection_bias: bool = False
    step_rank: int = 0  # mamba: width of what time steps are made of
    step_limits: tuple[float, float] = (0.0, math.inf)  # mamba2: of time steps
    has_norm: bool = True  # mamba2: in groups, behind the gate
    norm_before_gate: bool = False  # ... or before it
    # mamba2: factors of the gate, of what passes the heads, goes in, comes out, and of time steps
    scales: tuple[float, ...] | None = None

    @property
    def inner_size(self) -> int:
        """Columns of all heads."""
        return self.num_heads * self.head_dim

    @property
    def num_channels(self) -> int:
        """Columns that pass the convolution."""
        shared = 2 * self.num_groups * self.state_size
        return self.inner_size + (0 if self.kind == "mamba" else shared)

    @property
    def conv_shape(self) -> tuple[int, int]:
        """What a layer keeps for its convolution: [tokens before, channels]."""
        return self.conv_width - 1, self.num_channels

    @property
    def state_shape(self) -> tuple[int, int, int]:
        """What a layer keeps besides: [heads, columns of a head, numbers for each]."""
        return self.num_heads, self.head_dim, self.state_size

    @property
    def num_bytes(self) -> int:
        """Of a request, over all layers, in float32."""
        per_layer = math.prod(self.conv_shape) + math.prod(self.state_shape)
        return 4 * per_layer * len(self.layers)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchScales:
    """Factors in layers where attention and a state stand side by side."""

    state_in: float
    state_out: float
    attention_in: float
    attention_out: float
    mlp_gate: float  # of the gate, before its activation
    mlp_down: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """Shape and constants of one model."""

    architecture: str  # Hugging Face class name: a key of models/registry.py
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_draft_layers: int = 0  # stored behind them, to predict several tokens; not used
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int  # context that the checkpoint promises
    norm_eps: float  # of every norm
    hidden_act: HiddenAct
    rope: RopeFacts
    local_rope: RopeFacts | None = None  # for window layers, where they differ (Gemma 3)
    tie_word_embeddings: bool = False
    attention_bias: bool = False  # q, k, v have a bias
    attention_out_bias: bool = False  # o has a bias
    mlp_bias: bool = False
    head_bias: bool = False  # the output matrix has one
    gated_mlp: bool = True  # act(gate) * up; else act(up)
    # With it there is one KV head, of `head_dim` = kv_rank + rope_dim.
    latent: LatentFacts | None = None
    moe: MoeFacts | None = None  # layers with experts instead of an MLP
    state: StateFacts | None = None  # layers with a state, instead of attention or beside it
    branch_scales: BranchScales | None = None
    layers_without_attention: tuple[int, ...] = ()
    attention_gate: bool = False  # what a head attends to is weighted with a sigmoid of the input
    norm: NormKind = "rms"
    norm_bias: bool = False  # layer norms add one
    parallel_residual: bool = False  # attention and MLP both read the layer's input
    shared_norm: bool = False  # in parallel, both behind one norm
    qk_norm: bool = False  # RMS norm of each query and key head
    qk_norm_over_heads: bool = False  # ... of all heads together instead
    qk_norm_by_head: bool = False  # ... layer norms instead, with weights for each head
    qk_norm_plain: bool = False  # ... without weights, in layers that rotate
    clip_qkv: float | None = None  # largest magnitude of queries, keys and values
    # Of queries that are not rotated: period and weight of `ops.ops.Ops.position_factors`.
    temperature: tuple[float, float] | None = None
    attention_sinks: bool = False  # every head has a score beside those of keys, of no value
    attention_scale: float  # factor of q.k before softmax, usually head_dim ** -0.5
    sliding_windows: tuple[int, ...] = ()  # per layer, 0 = full attention; empty = full everywhere
    windows_are_chunks: bool = False  # sequences are cut, see `ops.ops.AttentionSpec.is_chunked`
    layers_without_rope: tuple[int, ...] = ()
    alibi: bool = False  # positions count by their distance, in scores; nothing is rotated
    alibi_scale: float = 1.0  # factor of what they count
    learned_positions: bool = False  # a vector for each position is added to the embedding
    num_positions: int = 0  # vectors in their table; 0: `max_position`
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # factor of what a layer adds to the residual stream
    norm_weight_offset: float = 0.0  # added to every norm weight on load (Gemma: 1)
    attention_soft_cap: float | None = None
    logits_soft_cap: float | None = None
    logits_scale: float = 1.0
    is_causal: bool = True  # a token sees those before it; else all: an encoder, without logits
    num_segments: int = 0  # texts that have a vector of their own; 0: there are no such vectors
    embedding_norm: bool = False  # the sum of embeddings is normed
    final_norm: bool = True  # there is a norm after the last layer
    pooling: PoolingFacts | None = None  # the model makes vectors of prompts; None: text
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    dtype: str = "float32"  # of unquantised weights in the checkpoint
    # From generation_config.json, where the checkpoint has one.
    generation_defaults: dict[str, float | int] = field(default_factory=dict)

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """Layers with attention; the place of one in here is the index of its KV storage."""
        without = set(self.layers_without_attention)
        return tuple(layer for layer in range(self.num_layers) if layer not in without)

    def window_of(self, layer: int) -> int | None:
        """Sliding window of a layer in tokens, the current one included; None: full attention."""
        window = self.sliding_windows[layer] if self.sliding_windows else 0
        return window or None
