"""Logits processors for tests, as a user would write them."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from octavo.logits_processors import AdapterLogitsProcessor, RequestLogitsProcessor
from octavo.sampling_params import SamplingParams


class OnlyToken(AdapterLogitsProcessor):
    """Leaves one token, `only_token`; raises instead where it is "fault" or "late fault"."""

    extra_args = ("only_token",)

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        wanted = (params.extra_args or {}).get("only_token", 0)
        if not isinstance(wanted, int | str):
            raise ValueError(f"only_token must be a token id, got {wanted!r}")

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        wanted = (params.extra_args or {}).get("only_token")
        if wanted == "fault":
            raise LookupError("no such token")
        return None if wanted is None else partial(_keep_only, wanted)


def _keep_only(wanted: int | str, output_ids: list[int], logits: memoryview) -> None:
    if isinstance(wanted, str):
        if output_ids:
            raise LookupError("no second token")
        return
    kept = logits[wanted]
    logits[:] = array("f", [-math.inf]) * len(logits)
    logits[wanted] = kept


class Watcher(AdapterLogitsProcessor):
    """Shows what it sees, and does what `edit` says, to requests with `watched`."""

    extra_args = ("watched",)
    seen: ClassVar[list[tuple[list[int], list[int], list[float]]]] = []
    edit: ClassVar[Callable[[memoryview], Any] | None] = None

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        return self._look if (params.extra_args or {}).get("watched") else None

    def _look(self, prompt_ids: list[int], output_ids: list[int], logits: memoryview) -> Any:
        self.seen.append((list(prompt_ids), list(output_ids), logits.tolist()))
        edit = type(self).edit
        return None if edit is None else edit(logits)


class LateWatcher(Watcher):
    """The same after temperature."""

    def is_argmax_invariant(self) -> bool:
        return True
