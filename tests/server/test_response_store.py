"""The store of responses: limits, what goes with what, files of others."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError, RequestFailedError
from octavo.server.response_store import ResponseStore, StoredResponse

LARGE = 10**9


@asynccontextmanager
async def store(
    path: str | None = None, max_entries: int = LARGE, max_bytes: int = LARGE
) -> AsyncIterator[ResponseStore]:
    one = ResponseStore(path, max_entries=max_entries, max_bytes=max_bytes)
    try:
        yield one
    finally:
        await one.close()


def named(name: str, size: int = 1, *, is_running: bool = False) -> StoredResponse:
    """A response with one item in and one out, both with its name."""
    items = [{"in": name}, {"out": name * size}]
    response = {"id": name, "output": items[1:]}
    return StoredResponse(response, items, 1, is_running=is_running)


def names(items: list[dict[str, Any]] | None) -> list[str]:
    return [item["in"] for item in items or () if "in" in item]


async def put(
    kept: ResponseStore, name: str, previous: str | None = None, size: int = 1, tenant: str = ""
) -> None:
    context = await kept.context(tenant, previous) if previous else []
    await kept.put(tenant, named(name, size), previous, context or [])


def overwrite(path: Path, first_page: int) -> None:
    """Damage a database from a page on."""
    data = path.read_bytes()
    begin = (first_page * 4096) % len(data)
    path.write_bytes(data[:begin] + b"\xff" * (len(data) - begin))


async def known(kept: ResponseStore, *asked: str) -> str:
    return "".join([name for name in asked if await kept.find("", name) is not None])


async def test_a_response_comes_back_as_it_was() -> None:
    async with store() as kept:
        await put(kept, "a")

        assert await kept.find("", "a") == named("a")
        assert await kept.find("other", "a") is None


async def test_the_context_of_a_response_is_that_of_all_before_it() -> None:
    async with store() as kept:
        for name, previous in (("a", None), ("b", "a"), ("c", "b"), ("x", "a")):
            await put(kept, name, previous)

        assert names(await kept.context("", "c")) == ["a", "b", "c"]
        assert names(await kept.context("", "x")) == ["a", "x"]
        assert await kept.context("other", "c") is None


async def test_beyond_its_limit_the_least_recently_used_goes() -> None:
    async with store(max_entries=3) as kept:
        for name in "abc":
            await put(kept, name)
        await kept.find("", "a")
        await put(kept, "d")

        assert await known(kept, *"abcd") == "acd"


async def test_bytes_are_a_limit_too() -> None:
    """A single one beyond it is kept, alone."""
    async with store(max_bytes=500) as kept:
        await put(kept, "a")
        await put(kept, "b", size=300)
        assert await known(kept, *"ab") == "ab"
        await put(kept, "c", size=200)
        assert await known(kept, *"abc") == "c"
        await put(kept, "d", size=5000)
        assert await known(kept, *"cd") == "d"


async def test_a_conversation_is_never_cut_in_the_middle() -> None:
    """Who goes on from a response keeps it; the newest end of the oldest conversation goes."""
    async with store(max_entries=3) as kept:
        await put(kept, "a")
        await put(kept, "b", "a")
        await put(kept, "c", "b")
        await put(kept, "d")
        assert await known(kept, *"abcd") == "abd"
        await put(kept, "e", "b")

        assert names(await kept.context("", "e")) == ["a", "b", "e"]
        assert await known(kept, *"abde") == "abe"


async def test_a_deleted_response_stays_only_for_those_that_go_on_from_it() -> None:
    async with store(max_entries=2) as kept:
        await put(kept, "a")
        await put(kept, "b", "a")
        assert await kept.delete("", "a")
        assert not await kept.delete("", "a")
        assert await known(kept, *"ab") == "b"
        assert names(await kept.context("", "b")) == ["a", "b"]
        assert await kept.context("", "a") is None

        assert await kept.delete("", "b")  # and a's items with it: there is room for two
        await put(kept, "c")
        await put(kept, "d")
        assert await known(kept, *"bcd") == "cd"


async def test_a_response_keeps_the_context_that_went_while_it_was_made() -> None:
    async with store() as kept:
        await put(kept, "a")
        context = await kept.context("", "a")
        await kept.delete("", "a")
        await kept.put("", named("b", is_running=True), "a", context or [])
        await kept.finish("", named("b", 2))

        assert names(await kept.context("", "b")) == ["a", "b"]
        found = await kept.find("", "b")
        assert found is not None
        assert found.response["output"] == [{"out": "bb"}]


async def test_a_running_response_is_neither_forgotten_nor_brought_back() -> None:
    async with store(max_entries=1) as kept:
        await kept.put("", named("a", is_running=True), None, [])
        await put(kept, "b")
        assert await known(kept, *"ab") == "ab"
        await kept.delete("", "a")
        await kept.finish("", named("a"))

        assert await known(kept, *"ab") == "b"


async def test_a_file_is_for_one_server_and_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    async with store(str(path)) as kept:
        await put(kept, "a")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with store(str(path)) as second:
            with pytest.raises(ConfigError, match="another server uses it"):
                await second.open()
    async with store(str(path), max_entries=1) as again:
        assert await known(again, "a") == "a"
        await put(again, "b")  # what was there counts
        assert await known(again, *"ab") == "b"


async def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("not a database " * 100)
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE a (b)")
    database.close()
    for path in (text, other, tmp_path, tmp_path / "absent" / "a.db"):
        before = path.read_bytes() if path.is_file() else b""
        async with store(str(path)) as kept:
            with pytest.raises(ConfigError, match="--response-store"):
                await kept.open()
        assert not path.is_file() or path.read_bytes() == before


@pytest.mark.parametrize("page", [1, 3])
async def test_a_damaged_file_is_refused_by_flag_and_name(tmp_path: Path, page: int) -> None:
    """All pages behind the first, or what a first use reads: one line, before anything runs."""
    path = tmp_path / "responses.db"
    async with store(str(path)) as kept:
        for number in range(100):
            await put(kept, str(number), size=300)
    overwrite(path, page)
    async with store(str(path)) as kept:
        with pytest.raises(ConfigError, match=r"--response-store .*responses\.db: it is damaged"):
            await kept.open()


async def test_damage_that_is_found_later_fails_what_needs_the_page(tmp_path: Path) -> None:
    path = tmp_path / "responses.db"
    async with store(str(path)) as kept:
        await put(kept, "a")
        await put(kept, "b", size=20_000)
    overwrite(path, -2)  # the pages that the long item goes on in
    async with store(str(path)) as kept:
        await kept.open()
        assert await known(kept, "a") == "a"
        with pytest.raises(RequestFailedError, match=r"--response-store .*: it is damaged"):
            await kept.find("", "b")


async def test_a_change_that_fails_changes_nothing() -> None:
    async with store(max_entries=2) as kept:
        await put(kept, "a")
        with pytest.raises(sqlite3.IntegrityError):
            await put(kept, "a")
        await put(kept, "b")

        assert await known(kept, *"ab") == "ab"


def test_the_limits_of_a_file_are_wider_than_those_of_memory() -> None:
    for path in (None, "x"):
        config = ServerConfig(response_store=path, max_stored_responses=5)
        assert ResponseStore.of(config)._max_entries == 5
    memory, file = (
        ResponseStore.of(ServerConfig()),
        ResponseStore.of(ServerConfig(response_store="x")),
    )
    assert memory._max_entries < file._max_entries
    assert memory._max_bytes < file._max_bytes
