"""The page about vLLM's own tests: made of the results, with a reason for each failure."""

from __future__ import annotations

import pytest

from tools.run_vllm_tests import FILES
from tools.vllm_reasons import KINDS, NOT_RUN, REASONS, reason_of
from tools.vllm_tests_page import DOC, failures, page, results


def test_the_page_is_what_the_results_make_of_it() -> None:
    """`python tools/vllm_tests_page.py` renews it; it fails where a failure has no reason."""
    text = DOC.read_text(encoding="utf-8")
    assert page(text) == text


def test_every_file_has_been_run() -> None:
    assert [f"tests/{name}" for name in FILES] == [file["file"] for file in results()["files"]]


def test_no_file_is_both_run_and_not_run() -> None:
    names = {name.removeprefix("entrypoints/").removesuffix(".py") for name in FILES}
    assert names & set(NOT_RUN) == set()


def test_every_reason_is_of_a_failure() -> None:
    """One that has been mended goes; a kind has words on the page."""
    used = {reason_of(*case) for case in failures(results()["files"])}
    assert set(REASONS) - used == set()
    assert {reason.kind for reason in REASONS} <= set(KINDS)


def test_a_failure_without_a_reason_is_an_error() -> None:
    with pytest.raises(LookupError, match="does not say why"):
        reason_of("openai/test_new.py", "test_new")
