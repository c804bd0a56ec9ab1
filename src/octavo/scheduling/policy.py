"""Scheduling policies: in which order requests are served.

Owns: one sort key for each policy. The same order admits waiting requests (smallest first), serves
running ones, and picks the victim of a preemption (largest).
Does not know: budgets, blocks.

A new policy is one function and one line in `POLICIES`. One that does not follow from the request
alone has queues of its own, as `fair` has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from octavo.contracts.request import EngineRequest
from octavo.errors import ConfigError

SortKey = tuple[float, ...]
"""Smaller is served sooner. The last entry is the order of arrival at the core: no ties."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An order of requests, and what else it asks of the scheduler."""

    sort_key: Callable[[EngineRequest, int], SortKey]
    preempts_on_arrival: bool = False  # an arrival may displace a worse running request at once
    shares_by_tenant: bool = False  # tenants take turns, see fair.py; the key orders within one


def _first_come(request: EngineRequest, sequence: int) -> SortKey:
    """By arrival at the core. A preempted request is older than all that wait: it goes first."""
    return (sequence,)


def _by_priority(request: EngineRequest, sequence: int) -> SortKey:
    """Lower `priority` first, then by arrival."""
    return (request.priority, request.arrival_s, sequence)


def _within_tenant(request: EngineRequest, sequence: int) -> SortKey:
    """As by priority, after two entries for the share of the tenant, which fair.py keeps."""
    return (0, 0, request.priority, request.arrival_s, sequence)


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "fcfs": Policy(_first_come),
        "priority": Policy(_by_priority, preempts_on_arrival=True),
        "fair": Policy(_within_tenant, shares_by_tenant=True),
    }
)


def find_policy(name: str) -> Policy:
    """The policy of this name.

    Raises ConfigError that lists the names.
    """
    if name not in POLICIES:
        known = ", ".join(POLICIES)
        raise ConfigError(f"--scheduling-policy must be one of {known}, got {name!r}")
    return POLICIES[name]
