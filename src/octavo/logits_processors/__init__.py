"""Logits processors: a user's Python between the model and the draw.

`base.py` is the contract for those who write one; `loading.py` finds and checks classes; `rows.py`
calls them for the rows of a runner.
"""

from __future__ import annotations

from octavo.logits_processors.base import AdapterLogitsProcessor, RequestLogitsProcessor

__all__ = ["AdapterLogitsProcessor", "RequestLogitsProcessor"]
