"""How a router chooses experts, in plain PyTorch: the definition of `ops.ops.RouterSpec`."""

from __future__ import annotations

import torch
from torch import Tensor

from octavo.ops.ops import RouterSpec

_LEAST_SUM = 1e-20  # so that weights of zero stay zero


def route(scores: Tensor, spec: RouterSpec, correction: Tensor | None) -> Tensor:
    """[rows, num_experts] -> [rows, 2 * num_chosen], see `ops.ops.Ops.route`."""
    if spec.scoring == "sparse_mixer":
        return _mixed_sparsely(scores, spec)
    values = scores
    if spec.scoring == "softmax":
        values = scores.softmax(dim=1)
    elif spec.scoring == "sigmoid":
        values = scores.sigmoid()
    selection = values if correction is None else values + correction
    if spec.num_chosen_groups < spec.num_groups:
        selection = _best_groups(selection, spec)
    chosen = _best(selection, spec.num_chosen)
    weights = values.gather(1, chosen)
    if spec.scoring == "softmax_chosen":
        weights = weights.softmax(dim=1)
    if spec.normalises:
        weights = weights / (weights.sum(dim=1, keepdim=True) + _LEAST_SUM)
    return torch.cat([chosen.to(weights.dtype), weights * spec.scale], dim=1)


def _best(values: Tensor, count: int) -> Tensor:
    """Columns of the largest, of equal ones the first: [rows, count]."""
    return values.sort(dim=1, descending=True, stable=True).indices[:, :count]


def _best_groups(selection: Tensor, spec: RouterSpec) -> Tensor:
    """The same with minus infinity for experts outside the best groups."""
    groups = selection.reshape(len(selection), spec.num_groups, -1)
    scores = groups.topk(spec.group_best, dim=2).values.sum(dim=2)
    kept = torch.zeros_like(scores, dtype=torch.bool)
    kept.scatter_(1, _best(scores, spec.num_chosen_groups), True)
    masked: Tensor = groups.masked_fill(~kept[:, :, None], float("-inf"))
    return masked.flatten(1)


def _mixed_sparsely(scores: Tensor, spec: RouterSpec) -> Tensor:
    """One expert after the other, see `ops.ops.RouterSpec`."""
    left, chosen, weights = scores.clone(), [], []
    for _ in range(spec.num_chosen):
        best = _best(left, 1)
        largest = left.gather(1, best)
        # Distances are measured on the scores themselves, those of experts chosen before included.
        reach = torch.maximum(scores.abs(), largest)
        is_far = (largest - scores) / reach > spec.tolerance
        shares = left.masked_fill(is_far, float("-inf")).softmax(dim=1)
        chosen.append(best)
        weights.append(shares.gather(1, best))
        left = left.scatter(1, best, float("-inf"))
    return torch.cat([*(best.to(scores.dtype) for best in chosen), *weights], dim=1)
