"""/v1/files: what comes in comes out, each tenant's own, within bounds."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from octavo.errors import ConfigError, InvalidRequestError
from octavo.server.batches.database import open_database
from octavo.server.batches.file_store import CHUNK_BYTES
from octavo.server.multipart import boundary_of, parts_of
from tests.support.batches import BOUNDARY, FORM, batch_server, form, upload


async def test_a_file_comes_back_byte_for_byte(tmp_path: Path) -> None:
    """Of several pieces, with bytes that look like the form's own."""
    content = os.urandom(2 * CHUNK_BYTES + 7) + f"\r\n--{BOUNDARY[:-1]}\r\n\r\n".encode() + b"\r\n"
    async with batch_server(tmp_path / "s") as client:
        made = (await upload(client, content, filename='a "b".jsonl'.replace('"', "%22"))).json
        shown = (await client.get(f"/v1/files/{made['id']}")).json
        got = await client.get(f"/v1/files/{made['id']}/content")

    assert got.content == content
    assert got.headers["content-length"] == str(len(content))
    assert shown == made
    assert (made["object"], made["bytes"], made["purpose"]) == ("file", len(content), "batch")
    assert made["filename"] == 'a "b".jsonl'


async def test_files_outlive_the_server(tmp_path: Path) -> None:
    """And a deleted one is gone."""
    async with batch_server(tmp_path / "s") as client:
        kept = (await upload(client, b"kept")).json["id"]
        gone = (await upload(client, b"gone")).json["id"]
        deleted = (await client.send("DELETE", f"/v1/files/{gone}")).json
    async with batch_server(tmp_path / "s") as client:
        listed = [one["id"] for one in (await client.get("/v1/files")).json["data"]]
        content = (await client.get(f"/v1/files/{kept}/content")).content
        missing = await client.get(f"/v1/files/{gone}/content")

    assert deleted == {"id": gone, "object": "file", "deleted": True}
    assert (listed, content) == ([kept], b"kept")
    assert (missing.status, missing.error["param"]) == (404, "file_id")


async def test_a_file_beyond_the_limit_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """413 and the option, announced or not; the connection ends with the answer."""
    async with batch_server(tmp_path / "s", config={"max_file_bytes": 1024}) as client:
        exact = await upload(client, b"x" * 1024)
        beyond = await upload(client, b"x" * 1025)
        announced = await upload(client, b"x", headers={"content-length": "99999999"})
        listed = (await client.get("/v1/files")).json["data"]

    assert (exact.status, beyond.status, announced.status) == (200, 413, 413)
    assert "--max-file-bytes" in beyond.error["message"]
    assert beyond.headers["connection"] == "close"
    assert [one["id"] for one in listed] == [exact.json["id"]]


async def test_a_tenant_may_not_fill_the_disk(tmp_path: Path) -> None:
    """--max-stored-bytes counts what one key keeps; deleting makes room."""
    async with batch_server(tmp_path / "s", config={"max_stored_bytes": 2000}) as client:
        first = await upload(client, b"x" * 1500)
        second = await upload(client, b"x" * 600)
        await client.send("DELETE", f"/v1/files/{first.json['id']}")
        third = await upload(client, b"x" * 600)

    assert (first.status, second.status, third.status) == (200, 413, 200)
    assert "--max-stored-bytes" in second.error["message"]


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (form(b"x", purpose="fine-tune"), 400, "purpose"),
        (f"--{BOUNDARY}--\r\n".encode(), 400, "purpose"),
        (form(b"x")[:-12], 400, None),
        (b"no form at all", 400, None),
        (b"", 400, None),
        (form(b"x", **{"expires_after[anchor]": "now"}), 400, "expires_after"),
        (form(b"x", **{"user": "x" * 5000}), 400, "user"),
    ],
)
async def test_a_wrong_form_is_refused_by_name(
    body: bytes, status: int, param: str | None, tmp_path: Path
) -> None:
    """And nothing of it is kept."""
    async with batch_server(tmp_path / "s") as client:
        reply = await client.post("/v1/files", body, headers=FORM)
        listed = (await client.get("/v1/files")).json["data"]

    assert (reply.status, reply.error["param"]) == (status, param)
    assert listed == []


async def test_json_is_no_upload(tmp_path: Path) -> None:
    """415."""
    async with batch_server(tmp_path / "s") as client:
        assert (await client.post("/v1/files", {})).status == 415


async def test_files_are_listed_in_pages_and_by_purpose(tmp_path: Path) -> None:
    """In either order; a wrong parameter is named."""
    async with batch_server(tmp_path / "s") as client:
        made = [(await upload(client, b"x")).json["id"] for _ in range(3)]
        first = (await client.get("/v1/files?limit=2&order=asc")).json
        rest = (await client.get(f"/v1/files?order=asc&after={first['last_id']}")).json
        none = (await client.get("/v1/files?purpose=batch_output")).json["data"]
        wrong = await client.get("/v1/files?limit=0")

    assert sorted(one["id"] for one in first["data"] + rest["data"]) == sorted(made)
    assert (first["has_more"], rest["has_more"], none) == (True, False, [])
    assert (wrong.status, wrong.error["param"]) == (400, "limit")


async def test_a_store_has_one_server(tmp_path: Path) -> None:
    """A second one is refused, and so are files that are something else."""
    database = await open_database(tmp_path / "s")
    with pytest.raises(ConfigError, match="another server"):
        await open_database(tmp_path / "s")
    await database.close()
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(ConfigError, match="--batch-store"):
        await open_database(tmp_path / "text")
    assert (tmp_path / "s").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("page", range(1, 10))
async def test_a_damaged_store_is_refused_before_the_model_is_loaded(
    tmp_path: Path, page: int
) -> None:
    """Wherever the damage begins in what a start reads: by flag and name, in one line."""
    path = tmp_path / "s"
    database = await open_database(path)
    await database.close()
    data = path.read_bytes()
    path.write_bytes(data[: page * 4096] + b"\xff" * 4096 + data[(page + 1) * 4096 :])
    with pytest.raises(ConfigError, match=r"--batch-store .*/s: it is damaged"):
        await open_database(path)


@given(cuts=st.lists(st.integers(1, 30), min_size=1, max_size=40), data=st.binary(max_size=60))
async def test_a_form_is_the_same_however_it_is_cut(cuts: list[int], data: bytes) -> None:
    """The encoder is an HTTP client's own."""
    request = httpx.Request(
        "POST", "http://x/", data={"purpose": "batch"}, files={"file": ("n.jsonl", data)}
    )
    body = request.read()

    async def pieces() -> AsyncIterator[bytes]:
        place = 0
        for number in range(len(body)):
            size = cuts[number % len(cuts)]
            yield body[place : place + size]
            place += size

    boundary = boundary_of(request.headers["content-type"])
    found = [
        (part.name, part.filename, b"".join([piece async for piece in part.data]))
        async for part in parts_of(pieces(), boundary)
    ]

    assert found == [("purpose", None, b"batch"), ("file", "n.jsonl", data)]


async def test_a_head_without_an_end_is_not_kept() -> None:
    """Its size is bounded."""

    async def endless() -> AsyncIterator[bytes]:
        yield b"--b\r\nContent-Disposition: form-data"
        while True:
            yield b"x" * 1000

    with pytest.raises(InvalidRequestError, match="head"):
        async for _ in parts_of(endless(), b"b"):
            pass
