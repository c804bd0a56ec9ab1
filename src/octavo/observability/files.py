"""The dashboard and the alert rules, with the metrics' names as a server has them.

Knows the prefix that `--metrics-namespace` changes, and nothing else of the server.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
FILES = {"dashboard": "dashboard.json", "alerts": "alerts.yaml"}
_SHARED_PREFIX = re.compile(r"\bvllm:")  # of the metrics that vLLM has too


def text_of(kind: str, namespace: str) -> str:
    """The file of a kind in FILES for a server with this `--metrics-namespace`."""
    text = (FOLDER / FILES[kind]).read_text(encoding="utf-8")
    return _SHARED_PREFIX.sub(f"{namespace}:", text)
