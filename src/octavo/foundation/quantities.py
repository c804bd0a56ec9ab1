"""Sizes and counts for people: one way to print and to read them."""

from __future__ import annotations

import math
from decimal import Decimal

from octavo.errors import ConfigError

_STEPS = ("B", "KiB", "MiB", "GiB", "TiB")
_SUFFIXES = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "K": 2**10,
    "M": 2**20,
    "G": 2**30,
    "T": 2**40,
}
_LARGEST = Decimal(2**64)  # a text of few characters may have a billion digits: 1e999999999


def format_bytes(num_bytes: float) -> str:
    """98362432 -> '93.8 MiB'."""
    value, unit = float(num_bytes), _STEPS[0]
    for unit in _STEPS:
        if abs(value) < 1024 or unit == _STEPS[-1]:
            break
        value /= 1024
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"


def format_seconds(seconds: float) -> str:
    """1.5 -> '1.500 s', 0.00012 -> '0.00012 s': never nothing for something."""
    text = f"{seconds:.3f}"
    if 0 < seconds < 0.01:
        text = f"{seconds:.{1 - math.floor(math.log10(seconds))}f}".rstrip("0")
    return f"{text} s"


def format_count(count: float) -> str:
    """49152 -> '49,152'."""
    return f"{count:,.0f}"


def parse_count(text: str, flag: str) -> int:
    """'8192', '8k', '1.5M' -> a number: lower case counts in thousands, upper case in 1024s.

    Raises ConfigError naming `flag`.
    """
    text = text.strip()
    digits = text.rstrip("kmgtKMGT")
    suffix = text[len(digits) :]
    try:
        value = Decimal(digits) * _SUFFIXES[suffix]  # exact: 2.3k is 2300
    except (KeyError, ArithmeticError):
        message = f"{flag} takes a whole number such as 8192, 8k or 8K, got {text!r}"
        raise ConfigError(message) from None
    if value.is_finite() and abs(value) >= _LARGEST:
        bound = f"below {_LARGEST}" if value > 0 else f"above -{_LARGEST}"
        raise ConfigError(f"{flag} must be {bound}, got {text!r}")
    if not value.is_finite() or value != value.to_integral_value():
        raise ConfigError(f"{flag} must be a whole number, got {text!r}")
    return int(value)
