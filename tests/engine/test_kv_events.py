"""The publisher of KV events: what subscribers see, what can be replayed, what is dropped."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import msgspec
import pytest
import zmq

from octavo.config.engine import CacheConfig, EngineConfig
from octavo.config.kv_events import KVEventsConfig
from octavo.contracts.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from octavo.contracts.kv_plan import KVGroup, KVPlan
from octavo.engine.build import start_core
from octavo.engine.kv_events import AnyEvent, KVEventPublisher, open_publisher
from octavo.errors import ConfigError
from octavo.executor.scripted import ScriptedExecutor, hash_of_history
from octavo.foundation.clock import ManualClock
from octavo.kvcache.manager import KVManager
from tests.support import kv_subscriber as wire
from tests.support.builders import make_kv_plan, make_request
from tests.support.kv_subscriber import END, PATIENCE_MS, Batch, Subscriber

HERE = "tcp://127.0.0.1:*"
HASHES = [sha256(b"%d" % number).digest() for number in range(4)]


def last_8(block_hash: bytes) -> int:
    return int.from_bytes(block_hash[-8:], "big")


@contextmanager
def publishing(**options: Any) -> Iterator[KVEventPublisher]:
    publisher = KVEventPublisher(KVEventsConfig(**({"endpoint": HERE} | options)))
    try:
        yield publisher
    finally:
        publisher.close()


def join(publisher: KVEventPublisher, subscriber: Subscriber) -> int:
    """Publish until the subscriber hears it, as a subscription takes time; the next number."""
    number = 1
    publisher.publish([AllBlocksCleared()])
    while not subscriber.hears_something():
        publisher.publish([AllBlocksCleared()])
        number += 1
    while subscriber.next()[0] < number - 1:
        pass
    return number


def removed(place: int) -> BlockRemoved:
    return BlockRemoved([HASHES[place % 4]], group_idx=place)


class Replayed:
    """A client of the replay endpoint. `delimiter` is the empty frame that a REQ socket adds."""

    def __init__(self, endpoint: str, *, delimiter: tuple[bytes, ...] = (b"",)) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.connect(endpoint)
        self.delimiter = delimiter

    def ask(self, first: bytes) -> None:
        self.socket.send_multipart([*self.delimiter, first])

    def read(self) -> list[tuple[int, Batch]]:
        """All batches until the end."""
        batches = []
        while True:
            assert self.socket.poll(PATIENCE_MS), "nothing came"
            *delimiter, number, payload = self.socket.recv_multipart()
            assert tuple(delimiter) == self.delimiter
            if int.from_bytes(number, "big") == END:
                assert payload == b""
                return batches
            batch = msgspec.msgpack.decode(payload, type=Batch)
            batches.append((int.from_bytes(number, "big"), batch))

    def close(self) -> None:
        self.context.destroy(linger=0)


@pytest.fixture
def replayed() -> Iterator[Callable[..., Replayed]]:
    made: list[Replayed] = []

    def make(endpoint: str | None, **options: Any) -> Replayed:
        assert endpoint is not None
        made.append(Replayed(endpoint, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_subscriber_sees_all_events_in_order():
    before = time.time()
    with (
        publishing(topic="kv@host") as publisher,
        Subscriber(publisher.endpoint, b"kv@") as subscriber,
    ):
        number = join(publisher, subscriber)
        publisher.publish(
            [
                BlockStored(HASHES[:2], None, [1, 2, 3, 4], 2),
                BlockStored([HASHES[2]], HASHES[1], [5, 6], 2, medium="DISK", group_idx=1),
            ]
        )
        publisher.publish([])
        publisher.publish([BlockRemoved([HASHES[2]], group_idx=1)])
        publisher.publish([AllBlocksCleared()])
        numbers, batches = zip(*(subscriber.next() for _ in range(3)), strict=True)

    whole = [last_8(block_hash) for block_hash in HASHES]
    assert [batch.events for batch in batches] == [
        [
            wire.BlockStored(whole[:2], None, [1, 2, 3, 4], 2, None, "GPU", None, None, None),
            wire.BlockStored([whole[2]], whole[1], [5, 6], 2, None, "DISK", None, None, 1),
        ],
        [wire.BlockRemoved([whole[2]], "GPU", 1)],
        [wire.AllBlocksCleared()],
    ]
    assert numbers == (number, number + 1, number + 2)
    assert set(subscriber.topics) == {b"kv@host"}
    assert {batch.data_parallel_rank for batch in batches} == {0}
    assert before <= batches[0].ts <= batches[-1].ts <= time.time()


def test_whole_hashes_are_sent_to_who_asks_for_them():
    with (
        publishing(block_hash_form="bytes") as publisher,
        Subscriber(publisher.endpoint) as subscriber,
    ):
        join(publisher, subscriber)
        publisher.publish([BlockStored([HASHES[1]], HASHES[0], [5], 1)])
        [stored] = subscriber.next()[1].events
    assert isinstance(stored, wire.BlockStored)
    assert [stored.parent_block_hash, *stored.block_hashes] == HASHES[:2]


def test_a_publisher_connects_to_a_subscriber_that_listens():
    """vLLM's rule: an endpoint without a wildcard is somebody else's."""
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.subscribe(b"")
        port = subscriber.bind_to_random_port("tcp://127.0.0.1")
        with publishing(endpoint=f"tcp://127.0.0.1:{port}") as publisher:
            publisher.publish([AllBlocksCleared()])
            while not subscriber.poll(10):
                publisher.publish([AllBlocksCleared()])
            assert len(subscriber.recv_multipart()) == 3


def test_a_host_that_nobody_knows_is_told_by_name(caplog: pytest.LogCaptureFixture):
    """ZeroMQ would wait in silence. A host that is known, or ours, is no matter."""
    for endpoint in (HERE, "tcp://127.0.0.1:5557"):
        with publishing(endpoint=endpoint):
            assert caplog.messages == []
    with publishing(endpoint="tcp://no-such-host.invalid:5557"):
        [told] = caplog.messages
    assert "endpoint 'tcp://no-such-host.invalid:5557' is not known" in told
    assert "tcp://*:5557" in told


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6 here")
def test_an_address_of_ipv6_can_be_listened_on():
    with (
        publishing(endpoint="tcp://[::1]:*") as publisher,
        zmq.Context() as context,
        context.socket(zmq.SUB) as subscriber,
    ):
        subscriber.ipv6 = True
        subscriber.subscribe(b"")
        subscriber.connect(publisher.endpoint)
        while not subscriber.poll(10):
            publisher.publish([AllBlocksCleared()])
        assert len(subscriber.recv_multipart()) == 3


@pytest.mark.parametrize("delimiter", [(b"",), ()])
def test_missed_batches_are_replayed_from_a_number_on(
    replayed: Callable[..., Replayed], delimiter: tuple[bytes, ...]
):
    with publishing(replay_endpoint=HERE) as publisher:
        client = replayed(publisher.replay_endpoint, delimiter=delimiter)
        for place in range(5):
            publisher.publish([removed(place)])
        client.ask((2).to_bytes(8, "big"))
        batches = client.read()
        assert [number for number, _ in batches] == [2, 3, 4]
        assert [batch.events[0].group_idx for _, batch in batches] == [2, 3, 4]  # type: ignore[union-attr]
        client.ask((5).to_bytes(8, "big"))
        assert client.read() == []


def test_only_so_many_batches_are_kept_for_replay(replayed: Callable[..., Replayed]):
    with publishing(replay_endpoint=HERE, buffer_steps=3) as publisher:
        client = replayed(publisher.replay_endpoint)
        for place in range(10):
            publisher.publish([removed(place)])
        client.ask(bytes(8))
        assert [number for number, _ in client.read()] == [7, 8, 9]


def test_a_long_replay_is_whole_though_its_client_reads_late(replayed: Callable[..., Replayed]):
    """ZeroMQ's own bound, 1,000 messages, would cut it."""
    with publishing(replay_endpoint=HERE, buffer_steps=20_000) as publisher:
        client = replayed(publisher.replay_endpoint)
        client.socket.rcvhwm = 1
        other = replayed(publisher.replay_endpoint)
        for place in range(15_000):
            publisher.publish([removed(place)])
        client.ask(bytes(8))
        other.ask((14_999).to_bytes(8, "big"))
        assert len(other.read()) == 1  # both requests have been answered
        assert [number for number, _ in client.read()] == list(range(15_000))


def test_what_is_no_replay_request_is_ignored(replayed: Callable[..., Replayed]):
    with publishing(replay_endpoint=HERE) as publisher:
        publisher.publish([removed(0)])
        client = replayed(publisher.replay_endpoint)
        client.ask(b"")
        client.ask(b"from the start, please")
        client.socket.send_multipart([b"", b"x", bytes(8)])
        client.ask(bytes(8))
        assert len(client.read()) == 1
        assert not client.socket.poll(0)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_a_mirror_built_from_events_is_the_index(
    replayed: Callable[..., Replayed], seed: int, groups: int
):
    """Requests with common beginnings come, grow, fail, go and are evicted, on a small pool."""
    random_ = random.Random(seed)
    windows = (KVGroup(), KVGroup(window=8))[:groups]
    kv = KVManager(
        KVPlan(num_blocks=16, block_size=4, bytes_per_block=1, groups=windows),
        collects_events=True,
    )
    with publishing(replay_endpoint=HERE) as publisher:
        client, mirror, seen = replayed(publisher.replay_endpoint), wire.Mirror(), 0
        for _ in range(60):
            for _ in range(5):
                run_step(kv, random_)
                publisher.publish(kv.take_events())
            if random_.random() < 0.1:
                assert kv.reset()
                publisher.publish(kv.take_events())
            client.ask(seen.to_bytes(8, "big"))
            seen += mirror.follow(client.read())
            assert mirror.found == {
                (content.group, last_8(content.block_hash))
                for _, content in kv.index
                if content.block_hash is not None
            }
    assert seen > 100


def test_a_router_that_follows_an_engine_knows_its_cache(replayed: Callable[..., Replayed]):
    """From the flag to the socket: random requests, aborts, failed steps, resets."""
    random_ = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="kv") as folder:
        endpoint = f"ipc://{folder}/replay"
        options = {
            "enable_kv_cache_events": True,
            "endpoint": f"ipc://{folder}/events",
            "replay_endpoint": endpoint,
        }
        config = EngineConfig(cache=CacheConfig(kv_events_config=json.dumps(options)))
        executor = ScriptedExecutor(hash_of_history(50), make_kv_plan(24, windows=(0, 8)))
        core = start_core(config, executor, ManualClock(), lambda phase, share: None)
        client, mirror, seen = replayed(endpoint), wire.Mirror(), 0
        for number in range(300):
            prompt = [random_.randrange(2)] * random_.randrange(1, 20) + [random_.randrange(5)]
            core.add_request(make_request(str(number), prompt, max_tokens=random_.randrange(1, 9)))
            if random_.random() < 0.05:
                executor.fail_run(RuntimeError("injected"))
            if random_.random() < 0.1:
                core.abort(str(random_.randrange(number + 1)))
            while core.has_work() and random_.random() < 0.8:
                core.step()
            if random_.random() < 0.05:
                while core.has_work():
                    core.step()
                assert core.reset_prefix_cache()
                assert not list(core.scheduler.kv.index)
            client.ask(seen.to_bytes(8, "big"))
            seen += mirror.follow(client.read())
            assert mirror.found == {
                (content.group, last_8(content.block_hash))
                for _, content in core.scheduler.kv.index
                if content.block_hash is not None
            }
        core.stop()
    assert seen > 200


def run_step(kv: KVManager, random_: random.Random) -> None:
    """Some requests enter together; one of them may fail; all end."""
    tables = []
    for _ in range(random_.randrange(1, 4)):
        tokens = [random_.randrange(2)] * random_.randrange(1, 20)
        tokens += [random_.randrange(100) for _ in range(random_.randrange(1, 12))]
        table = kv.open_table(array("i", tokens))
        if kv.admit(table, len(tokens), kv.match(table)) is not None:
            kv.announce(table, len(tokens))
            tables.append(table)
    kv.take_moves()
    failed = tables[0] if tables and random_.random() < 0.2 else None
    if failed is not None:
        lost = kv.retract(failed)
        for table in tables[1:]:
            if lost & set(table.held_blocks()):
                kv.forget(table)
    kv.commit()
    for table in tables:
        kv.free(table, 0 if table is failed else len(table.token_ids))


class Held(list[AnyEvent]):
    """Events that hold up whoever reads them."""

    def __init__(self, events: list[AnyEvent]) -> None:
        super().__init__(events)
        self.go = threading.Event()
        self.is_read = threading.Event()

    def __iter__(self) -> Iterator[AnyEvent]:
        self.is_read.set()
        assert self.go.wait(60)
        return super().__iter__()


def test_the_oldest_batch_goes_when_too_many_wait_and_leaves_a_gap(
    replayed: Callable[..., Replayed],
):
    with publishing(replay_endpoint=HERE, max_queue_size=2) as publisher:
        held = Held([removed(0)])
        publisher.publish(held)
        assert held.is_read.wait(60)
        for place in range(1, 6):
            publisher.publish([removed(place)])
        assert publisher.num_dropped == 3
        held.go.set()
        client = replayed(publisher.replay_endpoint)
        while True:  # until the thread has come to them
            client.ask(bytes(8))
            numbers = [number for number, _ in client.read()]
            if len(numbers) == 3:
                break
    assert numbers == [0, 4, 5]


def test_close_sends_what_waits_and_gives_the_endpoint_back():
    with publishing() as publisher, Subscriber(publisher.endpoint) as subscriber:
        first = join(publisher, subscriber)
        for place in range(1_000):
            publisher.publish([removed(place)])
        publisher.close()
        publisher.close()
        publisher.publish([removed(0)])
        assert [subscriber.next()[0] for _ in range(1_000)] == [*range(first, first + 1_000)]
        assert not subscriber.hears_something()
        with publishing(endpoint=publisher.endpoint.replace("127.0.0.1", "*")):
            pass


@pytest.mark.parametrize("name", ["endpoint", "replay_endpoint"])
def test_an_endpoint_in_use_is_refused_by_its_name(name: str):
    with publishing() as publisher:
        taken = publisher.endpoint.replace("127.0.0.1", "*")
        with pytest.raises(ConfigError, match=rf"--kv-events-config: {name} .* in use"):
            KVEventPublisher(KVEventsConfig(**({"endpoint": HERE} | {name: taken})))


def test_nothing_is_opened_unless_it_is_asked_for():
    assert open_publisher(KVEventsConfig()) is None


def test_without_pyzmq_the_command_that_brings_it_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(ConfigError, match=r"pip install 'octavo\[events\]'"):
        KVEventPublisher(KVEventsConfig(enable_kv_cache_events=True, endpoint=HERE))


def test_pyzmq_is_not_loaded_by_an_engine_that_publishes_nothing():
    script = (
        "import sys, octavo.engine.build, octavo.engine.kv_events as events;"
        "events.open_publisher(events.KVEventsConfig()); print('zmq' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert ended.stdout == b"False\n"
