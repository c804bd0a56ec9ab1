"""How a long start tells how far it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

ReportProgress: TypeAlias = Callable[[str, float], None]  # (phase, share done between 0 and 1)
