"""From points to what they say: medians over seeds, sustainable rates, factors.

The sustainable rate of a policy is the largest rate at which its normalised latency stays within a
limit, between two measured rates by linear interpolation. The limit is a multiple of the paged
policy's latency at the lowest rate, where nobody waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.record import spread
from benchmarks.serving_policies.policies import PAGED, POLICIES
from benchmarks.serving_policies.sweep import Case

LATENCY_LIMIT = 5.0  # times the latency without load
COMPARED = ("static", "orca-max", "orca-pow2", "orca-oracle", "orca-oracle-first-fit")

Curve = list[tuple[float, float]]
"""(rate, normalised latency), by rate."""


def cases_of(document: Mapping[str, Any]) -> list[Case]:
    """The cases of a results file, in order."""
    return list(dict.fromkeys(Case(**point["case"]) for point in document["points"]))


def policies_of(document: Mapping[str, Any]) -> list[str]:
    """The policies of a results file, in the order of POLICIES."""
    found = {point["policy"] for point in document["points"]}
    return [policy for policy in POLICIES if policy in found]


def values(
    document: Mapping[str, Any], case: Case, policy: str, part: str, name: str
) -> dict[float, dict[str, float]]:
    """rate -> median, min and max over the seeds of one number."""
    found: dict[float, list[float]] = {}
    for point in _points(document, case, policy):
        found.setdefault(point["rate"], []).append(point[part][name])
    return {rate: spread(found[rate]) for rate in sorted(found)}


def curve(document: Mapping[str, Any], case: Case, policy: str) -> Curve:
    """Median normalised latency against rate."""
    found = values(document, case, policy, "requests", "normalised_latency_s")
    return [(rate, value["median"]) for rate, value in found.items()]


def latency_limit_s(document: Mapping[str, Any], case: Case) -> float:
    """The limit for sustainable rates of a case."""
    return LATENCY_LIMIT * curve(document, case, PAGED)[0][1]


def sustainable_rate(points: Curve, limit_s: float) -> float | None:
    """Requests per second; None if even the lowest rate is too much.

    A curve that never crosses the limit gives its highest rate: the truth is at least that.
    """
    last: tuple[float, float] | None = None
    for rate, latency_s in points:
        if latency_s > limit_s:
            if last is None:
                return None
            share = (limit_s - last[1]) / (latency_s - last[1])
            return last[0] + share * (rate - last[0])
        last = rate, latency_s
    return None if last is None else last[0]


def crosses(points: Curve, limit_s: float) -> bool:
    """Whether the sweep went far enough to find the sustainable rate."""
    return any(latency_s > limit_s for _, latency_s in points)


def factors(document: Mapping[str, Any], case: Case) -> dict[str, str]:
    """Policy -> how many times its sustainable rate the paged policy reaches, as text."""
    limit_s = latency_limit_s(document, case)
    paged_curve = curve(document, case, PAGED)
    paged = sustainable_rate(paged_curve, limit_s)
    found = {}
    for policy in policies_of(document):
        other_curve = curve(document, case, policy)
        other = sustainable_rate(other_curve, limit_s)
        if paged is None or policy == PAGED:
            continue
        if other is None:
            found[policy] = f"> {paged / other_curve[0][0]:.1f}"
        elif not crosses(other_curve, limit_s):
            found[policy] = "?"  # the sweep ended too early for this one
        else:
            sign = "" if crosses(paged_curve, limit_s) else "> "
            found[policy] = f"{sign}{paged / other:.2f}"
    return found


def print_summary(document: Mapping[str, Any]) -> None:
    """For the terminal: sustainable rates and factors of each case."""
    for case in cases_of(document):
        if PAGED not in policies_of(document):
            continue
        limit_s = latency_limit_s(document, case)
        print(f"{case.title}: rates within {limit_s:.4f} s/token")
        by_policy = factors(document, case)
        for policy in policies_of(document):
            rate = sustainable_rate(curve(document, case, policy), limit_s)
            shown = "below the lowest" if rate is None else f"{rate:.3f}/s"
            print(f"  {policy:<22} {shown:>16}  paged is {by_policy.get(policy, '-')} x")


def _points(document: Mapping[str, Any], case: Case, policy: str) -> Iterable[Mapping[str, Any]]:
    for point in document["points"]:
        if point["policy"] == policy and Case(**point["case"]) == case:
            yield point
