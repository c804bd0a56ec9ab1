"""Check programs of csrc/tests that need no Python: built here, and run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from octavo.foundation.machine import cpu_count
from tests.support.check_programs import PROGRAMS, build, emulated_arm, run


@pytest.fixture(scope="module")
def programs() -> None:
    """All of them, compiled side by side."""
    with ThreadPoolExecutor(cpu_count()) as pool:
        list(pool.map(build, reversed(PROGRAMS)))  # the longest first


@pytest.mark.timeout(900)  # where the kernels have changed, most of it is the compiler's
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("programs")
def test_the_check_program_passes(name: str) -> None:
    """Over all instruction sets that this machine has."""
    outcome = run(name)

    assert outcome.returncode == 0, outcome.stdout
    assert "ok" in outcome.stdout


@pytest.mark.timeout(900)
@pytest.mark.skipif(emulated_arm() is None, reason="needs a compiler and an emulator for Arm")
def test_kernels_of_another_processor_pass_in_an_emulator() -> None:
    """Those but products and attention, which take minutes there."""
    outcome = run("kernels", machine=emulated_arm())

    assert outcome.returncode == 0, outcome.stdout
    assert "ok    all policies give the same bits" in outcome.stdout
