"""The contract of a logits processor, in the shape of vLLM's adapter for one request at a time.

    class OnlyToken(AdapterLogitsProcessor):
        extra_args = ("only_token",)

        def new_req_logits_processor(self, params):
            token_id = (params.extra_args or {}).get("only_token")
            return None if token_id is None else partial(keep_only, token_id)

    def keep_only(token_id, output_ids, logits):
        kept = logits[token_id]
        logits[:] = array("f", [-math.inf]) * len(logits)
        logits[token_id] = kept

The engine makes one object of the class, and asks it about every request. Processors work on one
row at a time, so that no answer depends on its neighbours.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias

from octavo.config.engine import EngineConfig
from octavo.sampling_params import SamplingParams

RequestLogitsProcessor: TypeAlias = Callable[..., Any]
"""`(output_ids, logits)` or `(prompt_ids, output_ids, logits)`, called for each token of a request.

The ids are lists of what is known so far, not to be changed. `logits` is a writable memoryview of
float32, one for each token of the vocabulary, good for this call only; `numpy.frombuffer` and
`torch.frombuffer` see the same memory. Write into it and return None, or return the new values:
float32 with the buffer protocol, or a tensor. What is raised ends this request alone.

A request that was preempted begins anew with the tokens it has, so whatever a processor remembers
must follow from the ids. All calls come from one thread, one after the other.
"""


class AdapterLogitsProcessor(ABC):
    """What an engine loads with `--logits-processors module:Class`."""

    extra_args: ClassVar[tuple[str, ...]] = ()
    """Names in a request's `vllm_xargs` (`extra_args` in SamplingParams) that this class reads.

    A request with a name that no loaded class reads is refused.
    """

    def __init__(self, config: EngineConfig, device: str, is_pin_memory: bool) -> None:
        """Called once, while the engine loads. vLLM's arguments; `device` holds the logits."""
        self.config = config

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        """Look at the parameters of a request before it is queued. ValueError refuses it."""
        return

    def is_argmax_invariant(self) -> bool:
        """Whether the best token always stays the best.

        False: works after masks and `logit_bias`, before penalties. True: works after temperature
        and `min_p`, before `top_k`, and is left out for greedy rows.
        """
        return False

    @abstractmethod
    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """What processes the logits of one choice of a request; None where there is nothing to do.

        `params` lack `output_kind` and `structured_outputs`. What is raised ends the request alone.
        """
