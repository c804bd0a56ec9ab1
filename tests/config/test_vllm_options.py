"""The table of vLLM's options: complete, without doubles, and the same as the page about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.config.keywords import PARTS
from octavo.config.server import ServerConfig
from octavo.config.speculative import SHORT_FORMS
from octavo.config.texts import SHORT
from octavo.config.vllm_options import (
    BATCH_OPTIONS,
    ENGINE_OPTIONS,
    FOREIGN,
    KEYWORD_OPTIONS,
    REMOVED_OPTIONS,
    SERVER_OPTIONS,
)
from tools.launch_tables import DOC, own_options, page, vllm_flags

FLAGS = (*ENGINE_OPTIONS, *REMOVED_OPTIONS, *SERVER_OPTIONS)
ROWS = (*FLAGS, *BATCH_OPTIONS, *KEYWORD_OPTIONS)
ENGINE = {name for part in PARTS.values() for name in part.__dataclass_fields__}


def test_every_flag_of_vllms_is_answered() -> None:
    """It is an option here, or a row of the table."""
    answered = {*own_options(), *SHORT_FORMS, *(row.name for row in FLAGS), "config"}
    assert vllm_flags() - answered == set()
    assert len(vllm_flags()) > 250


def test_rows_that_vllm_has_are_told_from_those_it_removed() -> None:
    """By the mark that the message shows."""
    theirs = vllm_flags()
    for row in FLAGS:
        assert row.is_removed == (row.name not in theirs), row.name


def test_no_row_stands_for_an_option_that_is_here() -> None:
    """Whoever adds an option takes its row out."""
    assert {row.name for row in FLAGS} & set(own_options()) == set()
    assert {row.name for row in KEYWORD_OPTIONS} & ENGINE == set()
    assert set(FOREIGN) & ENGINE == set()


def test_no_option_has_two_rows_and_no_spelling_two_options() -> None:
    """For one command each."""
    for more in (SERVER_OPTIONS, (*SERVER_OPTIONS, *BATCH_OPTIONS), KEYWORD_OPTIONS):
        rows = (*ENGINE_OPTIONS, *REMOVED_OPTIONS, *more)
        names = [row.name for row in rows]
        short = [name for row in rows for name in row.short]
        assert len(names) == len(set(names))
        assert len(short) == len(set(short))


def test_every_short_flag_of_vllms_is_one_of_an_option() -> None:
    """It stays with its option when that leaves the table."""
    assert set(SHORT) - {row.name for row in FLAGS} - set(own_options()) == set()


@pytest.mark.parametrize("name", ["host", "port"])
def test_rows_of_run_batch_are_options_of_the_server(name: str) -> None:
    """Which that command leaves out."""
    assert name in ServerConfig.__dataclass_fields__
    assert name in {row.name for row in BATCH_OPTIONS}


def test_a_reason_reads_on_from_its_colon() -> None:
    """One line without an end."""
    for row in ROWS:
        assert row.reason == row.reason.strip().rstrip("."), row.name
        assert "\n" not in row.reason


def test_the_page_has_the_tables() -> None:
    """`python tools/launch_tables.py` renews them."""
    text = Path(DOC).read_text(encoding="utf-8")
    assert page(text) == text


@pytest.mark.parametrize("name", ["xgrammar", "outlines", "lm-format-enforcer"])
def test_another_compiler_of_grammars_is_told_to_have_no_effect(name: str) -> None:
    """Scripts that ask for it start; answers are in the same form."""
    [row] = [row for row in FLAGS if row.name == "structured_outputs_config"]

    told = row.check({"backend": name}, "--structured-outputs-config", " ")

    assert told is not None
    assert f'"backend": "{name}"' in told
    assert "has no effect: llguidance compiles every grammar" in told
    assert row.check({"backend": "guidance"}, "--structured-outputs-config", " ") is None
