"""How a request for a vector ends without one."""

from __future__ import annotations

import pytest

from octavo.contracts.delta import TokenDelta
from octavo.engine.encoded import EncodedPrompt
from octavo.engine.pooled_stream import PooledStream
from octavo.engine.pooler import Pooler
from octavo.errors import OverloadedError
from octavo.pooling_params import PoolingParams
from tests.engine.test_pooler import EMBEDS
from tests.support.random_checkpoint import tiny_facts


def test_one_that_gave_way_in_the_queue_is_worth_sending_again():
    pooler = Pooler.of(tiny_facts(pooling=EMBEDS), cuts_prompts=False)
    assert pooler is not None
    stream = PooledStream(
        "a", EncodedPrompt([1]), PoolingParams(), pooler, core_id="a-0", on_news=lambda _: None
    )

    stream.push(TokenDelta("a-0", [], "abort", error="the queue is full", retry_after_s=7.0), 0.0)

    assert stream.is_finished
    with pytest.raises(OverloadedError, match="the queue is full") as caught:
        stream.take()
    assert caught.value.retry_after_s == 7.0
