"""The thread pool from Python; its own check program is run by test_check_programs.py."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path

import pytest

from octavo import _native
from octavo.contracts.step import StepPlan
from octavo.runner.native_runner import NativeRunner
from tests.native.test_session import PROMPT, SIZES, start, whole_prompt
from tests.support.step_driver import StepDriver, generate

CSRC = Path(__file__).resolve().parents[2] / "csrc"


def test_a_forked_child_gets_an_error_instead_of_waiting_for_ever() -> None:
    """Threads do not survive a fork; the parent goes on as before."""
    runner = start()
    driver = StepDriver(runner, SIZES)
    expected = generate(driver, PROMPT, 3)
    child = multiprocessing.get_context("fork").Process(target=_step_must_fail, args=(runner,))
    child.start()
    child.join(timeout=60)

    assert 0 == child.exitcode
    assert expected == generate(driver, PROMPT, 3)


def _step_must_fail(runner: NativeRunner) -> None:
    with pytest.raises(RuntimeError, match="create the engine after forking"):
        runner.run(StepPlan(step_id=1, **whole_prompt()))


def test_an_engine_that_is_never_closed_does_not_keep_the_interpreter_from_ending() -> None:
    """Neither a hang nor a complaint, whatever still refers to it."""
    code = (
        "import sys, threading; sys.path.insert(0, '.')\n"
        "from tests.native.test_session import start, whole_prompt, run\n"
        "runner = start(); print(run(runner, **whole_prompt()).sampled)\n"
        "threading.local().kept = runner; sys.kept = runner\n"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=CSRC.parent,
    )

    assert 0 == outcome.returncode, outcome.stderr
    assert "" == outcome.stderr


def test_a_pool_needs_a_thread() -> None:
    """Zero threads would compute nothing for ever."""
    with pytest.raises(ValueError, match="at least one thread"):
        _native.ThreadPool(0, pin=False)
