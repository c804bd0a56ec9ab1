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
    ("endpoint", "listens"),
    [
        ("tcp://*:5557", True),
        ("tcp://0.0.0.0:5557", True),
        ("tcp://[::]:5557", True),
        ("tcp://127.0.0.1:*", True),
        ("ipc:///tmp/kv-events", True),
        ("tcp://router:5557", False),
        ("tcp://127.0.0.1:5557", False),
        ("tcp://[fe80:0:0:0:0:0:0:1]:5557", False),
    ],
)
def test_an_endpoint_without_a_wildcard_is_a_subscribers(endpoint: str, listens: bool):
    """vLLM's rule."""
    assert parse_kv_events(f'{{"endpoint": "{endpoint}"}}').listens == listens


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('{"hwm": -1}', ["hwm must be at least 0, got -1"]),
        ('{"buffer_steps": "many"}', ['buffer_steps must be a whole number, got "many"']),
        ('{"max_queue_size": 0}', ["max_queue_size must be at least 1, got 0"]),
        ('{"publisher": "kafka"}', ['publisher must be "null" or "zmq", got "kafka"']),
        ('{"endpoint": "localhost:5557"}', ["endpoint", "tcp://HOST:PORT", "localhost:5557"]),
        ('{"endpoint": "inproc://here"}', ["endpoint", "ipc://PATH"]),
        ('{"endpoint": "ipc://"}', ["endpoint", "ipc://PATH"]),
        ('{"endpoint": "tcp://*"}', ["endpoint", "tcp://HOST:PORT"]),
        ('{"endpoint": "tcp://[::1]"}', ["endpoint", "tcp://HOST:PORT"]),
        ('{"endpoint": "tcp://*:70000"}', ["endpoint", "0 to 65535", "* for a free one", "70000"]),
        ('{"endpoint": "tcp://*:-1"}', ["endpoint", "0 to 65535"]),
        ('{"endpoint": "tcp://*:5557x"}', ["endpoint", "0 to 65535"]),
        ('{"endpoint": "tcp://router:0"}', ["endpoint", "1 to 65535"]),
        ('{"replay_endpoint": "tcp://router:65536"}', ["replay_endpoint", "0 to 65535"]),
        ('{"replay_endpoint": 5}', ["replay_endpoint must be a text, got 5"]),
        (
            '{"end_point": "tcp://*:1"}',
            ["end_point is not known; did you mean endpoint?", "replay_endpoint"],
        ),
        ('{"block_hash_form": "hex"}', ['block_hash_form must be "bytes" or "int", got "hex"']),
        ("tcp://*:5557", ["JSON", "tcp://*:5557", "enable_kv_cache_events"]),
        ("[]", ["it must be an object, got []"]),
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
