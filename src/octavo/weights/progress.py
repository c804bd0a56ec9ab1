"""How far a download has come: the record that the command line draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PullProgress:
    """One report. `total_bytes` is 0 while it is not known."""

    phase: str  # "waiting", "downloading", "unpacking", "checking"
    done_bytes: int
    total_bytes: int


OnProgress = Callable[[PullProgress], None]
