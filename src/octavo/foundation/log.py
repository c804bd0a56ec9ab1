"""Logging set-up: one line an event, to standard error, once per process."""

from __future__ import annotations

import logging
import math
import sys

from octavo.errors import ConfigError
from octavo.foundation import env

LEVELS = ("debug", "info", "warning", "error")
DEFAULT_INTERVAL_S = 10.0
SHORTEST_INTERVAL_S = 0.1


def set_up_logging(level: str | None = None) -> None:
    """Send the project's log messages to standard error. `level` beats OCTAVO_LOG_LEVEL.

    Raises ConfigError for a level that does not exist.
    """
    chosen = (level or env.value(env.LOG_LEVEL) or "info").lower()
    if chosen not in LEVELS:
        raise ConfigError(
            f"{env.LOG_LEVEL.name} must be one of {', '.join(LEVELS)}, got {chosen!r}"
        )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        logging.Formatter("%(levelname)s %(asctime)s %(message)s", "%m-%d %H:%M:%S")
    )
    root = logging.getLogger("octavo")
    root.handlers[:] = [handler]
    root.setLevel(chosen.upper())
    root.propagate = False


def statistics_interval_s() -> float:
    """Seconds between two statistics lines. Raises ConfigError for what is no such number."""
    text = env.value(env.LOG_INTERVAL)
    if text is None:
        return DEFAULT_INTERVAL_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not SHORTEST_INTERVAL_S <= seconds < math.inf:
        raise ConfigError(
            f"{env.LOG_INTERVAL.name} must be a number of seconds, at least "
            f"{SHORTEST_INTERVAL_S:g}, got {text!r}"
        )
    return seconds
