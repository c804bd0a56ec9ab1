"""Rigs that are checked when a test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from octavo.executor.scripted import Script
from octavo.scheduling.invariants import check
from tests.support.builders import Rig, make_rig

MakeRig = Callable[..., Rig]


@pytest.fixture
def new_rig() -> Iterator[MakeRig]:
    """make_rig, with all invariants checked at teardown."""
    rigs: list[Rig] = []

    def make(script: Script | None = None, **options: Any) -> Rig:
        rigs.append(make_rig(script, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        check(rig.scheduler)
