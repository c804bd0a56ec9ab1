"""Check programs of csrc/tests that need no Python: built here, and run."""

from __future__ import annotations

import pytest

from tests.support.check_programs import PROGRAMS, run


@pytest.mark.timeout(600)  # where the kernels have changed, most of it is the compiler's
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_check_program_passes(name: str) -> None:
    """Over all instruction sets that this machine has."""
    outcome = run(name)

    assert outcome.returncode == 0, outcome.stdout
    assert "ok" in outcome.stdout
