"""One pass of a model of transformers' without numbers: what its attention asks for, or why not.

Owns the refusals of models whose tokens reach each other by other ways than our attention. Does not
know files.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from octavo.backends.torch.foreign.attention import NO_SIGHT, AttentionCall, Sight, refusal
from octavo.errors import UnsupportedModelError

_NUM_TOKENS = 37  # no size of a model
# Arguments that reach the attention function and change nothing in it.
_WITHOUT_MEANING = frozenset(
    {
        *("cache_position", "dropout", "is_causal", "logits_to_keep", "output_attentions"),
        *("output_hidden_states", "output_router_logits", "position_ids", "return_dict"),
        *("use_cache",),
    }
)
_HONOURED = frozenset({"s_aux", "sliding_window", "softcap"})


@dataclass(frozen=True, slots=True)
class Probed:
    """What a pass found."""

    calls: tuple[AttentionCall, ...]
    vocab_size: int


@dataclass
class _Probe:
    """An `Attends` that notes."""

    names: dict[torch.nn.Module, str]
    calls: list[AttentionCall] = field(default_factory=list)

    def attend(
        self,
        module: torch.nn.Module,
        qkv: tuple[Tensor, Tensor, Tensor],
        mask: object,
        scale: float | None,
        asked: dict[str, Any],
    ) -> Tensor:
        """See `Attends`."""
        name = self.names[module]
        q, k, v = qkv
        if q.shape[0] != 1 or not q.shape[2] == k.shape[2] == v.shape[2]:
            raise refusal(f"{name} attends to other tokens than those of its own sequence")
        for word, value in asked.items():
            if value is None or value is False or word in _WITHOUT_MEANING | _HONOURED:
                continue
            raise refusal(f"{name} asks attention for {word}, which it does not have")
        self.calls.append(
            AttentionCall(
                module=name,
                num_heads=q.shape[1],
                num_kv_heads=k.shape[1],
                key_dim=k.shape[3],
                value_dim=v.shape[3],
                scale=float(k.shape[3] ** -0.5 if scale is None else scale),
                sight=_sight(name, module, mask, asked),
                soft_cap=asked.get("softcap"),
            )
        )
        return v.new_empty(1, q.shape[2], q.shape[1], v.shape[3])


class _Counting(TorchFunctionMode):
    """Refuses code that numbers the tokens of a pass, which are of several sequences."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.arange and _count_of(*args, **(kwargs or {})) == _NUM_TOKENS:
            caller = sys._getframe(1)
            raise refusal(
                "it numbers tokens itself instead of taking their positions "
                f"({Path(caller.f_code.co_filename).name}, line {caller.f_lineno})"
            )
        return func(*args, **(kwargs or {}))


def _count_of(*bounds: Any, **named: Any) -> object:
    """How many numbers `torch.arange` is asked for, with a step of one."""
    given = [*bounds, *(named[word] for word in ("start", "end") if word in named)][:2]
    return given[-1] - given[0] if len(given) == 2 else next(iter(given), None)


def probe(model: Any, config: Any) -> Probed:
    """Run `model`, which is on the device meta and has the implementation PROBE.

    Raises UnsupportedModelError that says what keeps it from running here.
    """
    _check_kinds(config)
    noting = _Probe({module: name for name, module in model.named_modules()})
    for module in model.modules():
        module.octavo = noting
    tokens = torch.zeros(1, _NUM_TOKENS, dtype=torch.long, device="meta")
    if takes_wanted_rows(model):
        wanted = {"logits_to_keep": torch.zeros(1, dtype=torch.long, device="meta")}
    else:
        wanted = {}
    try:
        with torch.inference_mode(), _Counting():
            logits = model(
                input_ids=tokens,
                # A mask without padding: without one transformers would look at the positions.
                attention_mask=torch.ones_like(tokens),
                position_ids=torch.zeros_like(tokens),
                use_cache=False,
                **wanted,
            ).logits
    except UnsupportedModelError:
        raise
    except Exception as error:  # a border: the forward pass of a stranger's class, without numbers
        raise refusal(
            f"its code does not run without numbers, which is how its attention is found out "
            f"({type(error).__name__}: {str(error)[:200]})"
        ) from error
    _check_calls(noting.calls, config)
    return Probed(tuple(noting.calls), int(logits.shape[-1]))


def takes_wanted_rows(model: Any) -> bool:
    """Whether the model makes logits of chosen tokens only."""
    return "logits_to_keep" in inspect.signature(model.forward).parameters


def _sight(name: str, module: torch.nn.Module, mask: object, asked: dict[str, Any]) -> Sight:
    if isinstance(mask, Sight):
        return mask
    if mask is not None:
        what = "of another shape than all, a window or chunks" if mask is NO_SIGHT else "of its own"
        raise refusal(f"{name} uses a mask {what}; only causal attention is served")
    if not asked.get("is_causal", getattr(module, "is_causal", True)):
        raise refusal(f"{name} sees later tokens; only causal attention is served")
    return Sight(asked.get("sliding_window") or 0)


def _check_kinds(config: Any) -> None:
    """No layer mixes tokens otherwise, as far as the configuration tells."""
    kinds = getattr(config, "layer_types", None) or ()
    for kind in kinds:
        if not kind.endswith("attention") or kind.startswith("linear"):
            raise refusal(f"it has layers of the kind {kind}, which keep a state of their own")


def _check_calls(calls: list[AttentionCall], config: Any) -> None:
    if not calls:
        raise refusal("its code never calls the attention interface of transformers")
    if len(calls) < config.num_hidden_layers:
        raise refusal(
            f"{len(calls)} calls of attention for {config.num_hidden_layers} layers: the others "
            "mix tokens in a way of their own"
        )
