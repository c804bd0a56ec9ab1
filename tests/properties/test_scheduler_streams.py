"""Random histories: whatever happens to its neighbours, a request gets its solo answer.

OCTAVO_HISTORIES=10000 (with pytest --timeout 0) makes it ten thousand of each kind.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.properties.histories import FaultyHistories, Histories

_SETTINGS = settings(
    max_examples=int(os.environ.get("OCTAVO_HISTORIES", "100")),
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestHistories = Histories.TestCase
TestHistories.settings = _SETTINGS
TestFaultyHistories = FaultyHistories.TestCase
TestFaultyHistories.settings = _SETTINGS
