"""What the attempts to break a server are made of, without a server."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from benchmarks.stress.kill_offload import DAMAGES, damage
from benchmarks.stress.prompts import BLOCK, probes
from benchmarks.stress.served import read_body, read_head, token_lists

IMAGE = bytes(range(1, 256)) * 40
OTHER = IMAGE[::-1]


def test_the_same_seed_asks_the_same_questions() -> None:
    assert probes(3, 200, 40) == probes(3, 200, 40)
    assert probes(3, 200, 40) != probes(4, 200, 40)


def test_the_questions_use_every_way_to_share_blocks() -> None:
    bodies = probes(3, 400, 200)
    kinds = {(bool(body.get("use_beam_search")), body.get("n", 1) > 1) for body in bodies}
    heads = [tuple(body["prompt"][:BLOCK]) for body in bodies]

    assert kinds == {(False, False), (False, True), (True, True)}
    assert len(set(heads)) < len(heads)
    assert any(len(body["prompt"]) % BLOCK for body in bodies)
    assert all(1 <= len(body["prompt"]) <= 400 for body in bodies)


@pytest.mark.parametrize("kind", DAMAGES)
def test_every_kind_of_damage_leaves_another_thing_than_the_file(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "a.kv", tmp_path / "b.kv"
    path.write_bytes(IMAGE)
    other.write_bytes(OTHER)

    damage(path, kind, random.Random(2), [other])

    is_whole = path.is_file() and not path.is_symlink() and path.read_bytes() == IMAGE
    assert not is_whole
    assert other.read_bytes() == OTHER


def test_what_vanished_meanwhile_is_not_damaged(tmp_path: Path) -> None:
    damage(tmp_path / "gone.kv", "flip", random.Random(2), [tmp_path / "gone.kv"])

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("header", "body"),
    [
        (b"content-length: 10", b"0123456789"),
        (b"Transfer-Encoding: chunked", b"3\r\n012\r\n7\r\n3456789\r\n0\r\n\r\n"),
    ],
)
def test_an_answer_is_read_whole_in_both_forms(header: bytes, body: bytes) -> None:
    async def read() -> tuple[int, bytes]:
        reader = asyncio.StreamReader()
        reader.feed_data(b"HTTP/1.1 200 OK\r\n" + header + b"\r\n\r\n" + body)
        reader.feed_eof()
        status, headers = await read_head(reader)
        return status, await read_body(reader, headers)

    assert asyncio.run(read()) == (200, b"0123456789")


def test_choices_are_put_into_order() -> None:
    answer = {"choices": [{"index": 1, "token_ids": [5]}, {"index": 0, "token_ids": [4, 3]}]}

    assert token_lists(answer) == [[4, 3], [5]]
