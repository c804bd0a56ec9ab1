"""Sizes and counts for people."""

from __future__ import annotations

import pytest

from octavo.errors import ConfigError
from octavo.foundation.quantities import format_bytes, parse_count


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (98362432, "93.8 MiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_bytes_are_shown_in_the_largest_fitting_unit(num_bytes: int, text: str) -> None:
    """One decimal from KiB on; TiB is the last unit."""
    assert format_bytes(num_bytes) == text


@pytest.mark.parametrize(
    ("text", "count"),
    [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5M", 1572864), ("2.3k", 2300), ("-1", -1)],
)
def test_counts_take_decimal_and_binary_suffixes(text: str, count: int) -> None:
    """Lower case counts in thousands, upper case in 1024s."""
    assert parse_count(text, "--x") == count


@pytest.mark.parametrize(
    "text", ["", "k", "8q", "8kk", "1.5", "nan", "inf", "1e999", "1e999999999"]
)
def test_what_is_no_count_is_refused_by_flag(text: str) -> None:
    """The error names the flag."""
    with pytest.raises(ConfigError, match="--max-model-len"):
        parse_count(text, "--max-model-len")


@pytest.mark.parametrize("text", ["99999999999999999999999", "1e999"])
def test_a_count_beyond_64_bits_is_told_its_limit(text: str) -> None:
    """It is a whole number, so the error says what is wrong with it."""
    with pytest.raises(ConfigError, match="--max-num-seqs must be below 18446744073709551616"):
        parse_count(text, "--max-num-seqs")
