"""--kv-events-config: vLLM's names and defaults, and errors that name the field."""

from __future__ import annotations

import pytest

from octavo.config.kv_events import KVEventsConfig, parse_kv_events
from octavo.errors import ConfigError


def test_nothing_is_published_unless_it_is_asked_for():
    assert not parse_kv_events(None).is_on
    assert not parse_kv_events("{}").is_on
    assert not parse_kv_events('{"publisher": "zmq"}').is_on
    assert not parse_kv_events('{"enable_kv_cache_events": true, "publisher": "null"}').is_on


def test_enabling_is_enough_and_means_vllms_endpoint():
    config = parse_kv_events('{"enable_kv_cache_events": true}')
    assert config.is_on
    assert config == KVEventsConfig(
        enable_kv_cache_events=True,
        endpoint="tcp://*:5557",
        replay_endpoint=None,
        buffer_steps=10_000,
        hwm=100_000,
        max_queue_size=100_000,
        topic="",
        block_hash_form="int",
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"hwm": -1}', ["hwm", ">= 0"]),
        ('{"buffer_steps": "many"}', ["buffer_steps", "int"]),
        ('{"max_queue_size": 0}', ["max_queue_size", ">= 1"]),
        ('{"publisher": "kafka"}', ["publisher", "kafka"]),
        ('{"endpoint": "localhost:5557"}', ["endpoint", "tcp|ipc"]),
        ('{"endpoint": "inproc://here"}', ["endpoint", "tcp|ipc"]),
        ('{"replay_endpoint": 5}', ["replay_endpoint", "str"]),
        ('{"end_point": "tcp://*:1"}', ["end_point", "replay_endpoint"]),
        ('{"block_hash_form": "hex"}', ["block_hash_form", "hex"]),
        ("tcp://*:5557", ["JSON", "tcp://*:5557", "enable_kv_cache_events"]),
        ("[]", ["object"]),
        ("", ["JSON"]),
    ],
)
def test_what_is_wrong_is_named(text: str, names: list[str]):
    with pytest.raises(ConfigError) as caught:
        parse_kv_events(text)
    message = str(caught.value)
    assert "--kv-events-config" in message
    for name in names:
        assert name in message
