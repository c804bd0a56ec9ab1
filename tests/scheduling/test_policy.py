"""Policies: who is served before whom."""

from __future__ import annotations

import pytest

from octavo.config.engine import POLICIES as POLICY_NAMES
from octavo.errors import ConfigError
from octavo.scheduling.policy import POLICIES, find_policy
from tests.support.builders import make_request


def test_fcfs_goes_by_arrival_at_the_core_and_ignores_priority():
    key = find_policy("fcfs").sort_key
    assert key(make_request(priority=9), 0) < key(make_request(priority=0), 1)


def test_priority_goes_by_lower_number_then_by_time_then_by_arrival_at_the_core():
    key = find_policy("priority").sort_key
    urgent = key(make_request(priority=-1, arrival_s=9.0), 3)
    early = key(make_request(priority=0, arrival_s=1.0), 2)
    late = key(make_request(priority=0, arrival_s=2.0), 0)
    later = key(make_request(priority=0, arrival_s=2.0), 1)
    assert [urgent, early, late, later] == sorted([later, late, early, urgent])


def test_fair_goes_within_a_tenant_as_priority_does():
    """Between tenants the queues decide, see test_fair.py."""
    key = find_policy("fair").sort_key
    urgent = key(make_request(priority=-1, arrival_s=9.0), 3)
    early = key(make_request(priority=0, arrival_s=1.0), 2)
    late = key(make_request(priority=0, arrival_s=2.0), 0)
    assert [urgent, early, late] == sorted([late, early, urgent])


def test_every_configurable_policy_exists():
    assert set(POLICY_NAMES) == set(POLICIES)


def test_an_unknown_policy_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match="must be one of fcfs, priority, fair, got 'lifo'"):
        find_policy("lifo")
