"""When a request ends: end of sequence, stop ids, length, in this order."""

from __future__ import annotations

import pytest

from octavo.scheduling.request import Request
from octavo.scheduling.stop import Finish, finish_of
from tests.support.builders import make_kv, make_request


def request_with_answer(*answer: int, max_model_len: int = 1000, **fields: object) -> Request:
    source = make_request(prompt=range(10), **fields)  # type: ignore[arg-type]
    request = Request(source, (0,), max_model_len, make_kv())
    request.token_ids.extend(answer)
    return request


@pytest.mark.parametrize(
    ("token_id", "finish"),
    [
        (2, Finish("stop")),
        (3, Finish("stop", 3)),
        (4, Finish("stop")),
        (5, None),
    ],
)
def test_an_end_of_sequence_id_counts_before_a_stop_id(token_id: int, finish: Finish | None):
    """A stop id is named in `stop_reason`, the model's own end is not."""
    request = request_with_answer(token_id, eos_token_ids=[2, 4], stop_token_ids=[3, 4])
    assert finish == finish_of(request, token_id)


def test_without_end_of_sequence_ids_only_the_length_ends_a_request():
    """ignore_eos is an empty list."""
    request = request_with_answer(2, max_tokens=2)
    assert finish_of(request, 2) is None
    request.token_ids.append(2)
    assert Finish("length") == finish_of(request, 2)


def test_a_full_context_ends_a_request():
    request = request_with_answer(1, 1, max_tokens=50, max_model_len=12)
    assert Finish("length") == finish_of(request, 1)


def test_a_stop_id_as_the_last_allowed_token_is_a_stop():
    request = request_with_answer(3, max_tokens=1, stop_token_ids=[3])
    assert Finish("stop", 3) == finish_of(request, 3)
