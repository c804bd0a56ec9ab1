"""--api-keys-file and `octavo keys`: whose key opens what, how much, and since when."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.main import main
from octavo.config.api_keys import hash_of, read_keys
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.foundation.clock import ManualClock
from octavo.server.app import ROUTES, build_app
from octavo.server.auth import OPEN_PATHS
from octavo.server.keys import LOOK_EVERY_S, KeyRing
from octavo.server.quotas import DAY_S, Quotas
from octavo.server.usage_file import kept_usage, usage_path
from tests.server.conftest import MakeFolder
from tests.support.asgi import Client, scripted_server
from tests.support.scripted_engine import ROOM_FOR_ENDLESS, says
from tests.support.tiny_pooling import pooling_server

Capture = pytest.CaptureFixture[str]
COMPLETIONS = "/v1/completions"
ANN, BEN = "key-of-ann", "key-of-ben"
SECRET = "sk-octavo-nobody-may-see"
NOON_S = 20_000 * DAY_S + DAY_S / 2
ONE = {"prompt": "One", "max_tokens": 4}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def key_file(folder: Path, *records: dict[str, Any], name: str = "keys.json") -> Path:
    path = folder / name
    shown = [{"sha256": hash_of(record.pop("key")), **record} for record in map(dict, records)]
    path.write_text(json.dumps({"keys": shown}))
    return path


def config_of(path: Path, **more: Any) -> ServerConfig:
    return ServerConfig(api_keys_file=str(path), **more)


def with_clocks(client: Client) -> tuple[ManualClock, list[float]]:
    """Clocks that the test moves, for keys and limits alike: monotonic, and since the epoch."""
    clock, wall = ManualClock(), [NOON_S]
    state = client.state
    state.keys = KeyRing(state.config, clock)
    state.quotas = Quotas(clock, lambda: wall[0])
    client.app = build_app(state)
    return clock, wall


# ---- scopes


async def test_a_key_opens_its_scopes_and_nothing_else(tmp_path: Path) -> None:
    """401 without a key, 403 with one of another scope."""
    scopes = ("inference", "batches", "metrics", "admin")
    records = [{"name": scope, "key": f"key-{scope}", "scopes": [scope]} for scope in scopes]
    paths = ("/v1/models", "/v1/files", "/metrics", "/debug/kv")
    async with scripted_server(config=config_of(key_file(tmp_path, *records))) as client:
        statuses = {
            scope: [
                (await client.get(path, headers=bearer(f"key-{scope}"))).status for path in paths
            ]
            for scope in scopes
        }
        nobody = [(await client.get(path, headers=bearer("other"))).status for path in paths]
        told = await client.get("/metrics", headers=bearer("key-inference"))

    assert statuses == {
        "inference": [200, 403, 403, 403],
        "batches": [403, 404, 403, 403],  # 404: there is no --batch-store
        "metrics": [403, 403, 200, 403],
        "admin": [200, 404, 200, 200],
    }
    assert nobody == [401] * 4
    assert "metrics" in told.error["message"]


async def test_only_probes_are_open(tmp_path: Path) -> None:
    """And the metrics, where --metrics-public says so."""
    path = key_file(tmp_path, {"name": "ann", "key": ANN})
    open_routes = {}
    for public in (False, True):
        async with scripted_server(config=config_of(path, metrics_public=public)) as client:
            open_routes[public] = {
                route
                for method, route, _ in ROUTES
                if "{" not in route and (await client.send(method, route)).status != 401
            }

    assert {"/health", "/ready", "/ping"} <= OPEN_PATHS
    assert open_routes[False] == OPEN_PATHS
    assert open_routes[True] == OPEN_PATHS | {"/metrics"}


async def test_keys_of_flags_and_of_the_file_stand_side_by_side(tmp_path: Path) -> None:
    """An --admin-api-key opens everything as before."""
    path = key_file(tmp_path, {"name": "ann", "key": ANN})
    config = config_of(path, api_key=(BEN,), admin_api_key=("boss",))
    async with scripted_server(config=config) as client:
        found = [
            (await client.get("/v1/models", headers=bearer(key))).status
            for key in (ANN, BEN, "boss", "other")
        ]
        admin = (await client.get("/debug/kv", headers=bearer("boss"))).status

    assert (found, admin) == ([200, 200, 200, 401], 200)


# ---- limits


async def test_requests_per_minute_are_a_bucket(tmp_path: Path) -> None:
    """429 with Retry-After once it is empty; it fills steadily. Others are not touched."""
    path = key_file(
        tmp_path, {"name": "ann", "key": ANN, "requests_per_minute": 2}, {"name": "ben", "key": BEN}
    )
    async with scripted_server(says({}), config_of(path)) as client:
        clock, _ = with_clocks(client)
        replies = [await client.post(COMPLETIONS, ONE, headers=bearer(ANN)) for _ in range(3)]
        other = await client.post(COMPLETIONS, ONE, headers=bearer(BEN))
        clock.advance(31)
        again = await client.post(COMPLETIONS, ONE, headers=bearer(ANN))
        looked = await client.get("/v1/models", headers=bearer(ANN))

    assert [reply.status for reply in replies] == [200, 200, 429]
    refused = replies[2]
    assert (refused.error["type"], refused.error["code"]) == (
        "RateLimitError",
        "rate_limit_exceeded",
    )
    assert refused.headers["retry-after"] == "30"
    assert [reply.headers["x-ratelimit-remaining-requests"] for reply in replies] == ["1", "0", "0"]
    assert refused.headers["x-ratelimit-limit-requests"] == "2"
    assert replies[1].headers["x-ratelimit-reset-requests"] == "1m0s"
    assert (other.status, again.status, looked.status) == (200, 200, 200)
    assert "x-ratelimit-limit-requests" not in other.headers


async def test_a_budget_counts_what_was_used_and_is_new_each_day(tmp_path: Path) -> None:
    """The request that reaches it is not cut off; the next one is told when to come back."""
    path = key_file(tmp_path, {"name": "ann", "key": ANN, "tokens_per_day": 8})
    async with scripted_server(says({}), config_of(path)) as client:
        _, wall = with_clocks(client)
        first = await client.post(COMPLETIONS, ONE | {"max_tokens": 20}, headers=bearer(ANN))
        used = first.json["usage"]["total_tokens"]
        refused = await client.post(COMPLETIONS, ONE, headers=bearer(ANN))
        wall[0] += DAY_S / 2 + 1
        tomorrow = await client.post(COMPLETIONS, ONE, headers=bearer(ANN))

    assert used > 8
    assert (first.status, refused.status, tomorrow.status) == (200, 429, 200)
    assert first.headers["x-ratelimit-limit-tokens"] == "8"
    assert refused.error["code"] == "insufficient_quota"
    assert refused.headers["x-ratelimit-remaining-tokens"] == "0"
    assert refused.headers["retry-after"] == str(DAY_S // 2)


async def test_a_restart_gives_no_budget_back(tmp_path: Path) -> None:
    """Within the day; the file says nothing but names and numbers."""
    path = key_file(tmp_path, {"name": "ann", "key": ANN, "tokens_per_day": 8})
    statuses = []
    for later_s in (0, 60, DAY_S):
        async with scripted_server(says({}), config_of(path)) as client:
            _, wall = with_clocks(client)
            wall[0] += later_s
            async with kept_usage(str(path), client.state.quotas):
                reply = await client.post(
                    COMPLETIONS, ONE | {"max_tokens": 20}, headers=bearer(ANN)
                )
                statuses.append(reply.status)

    assert statuses == [200, 429, 200]
    assert set(json.loads(usage_path(path).read_text())) == {"day", "num_tokens"}


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
async def test_a_broken_count_begins_anew(content: bytes, tmp_path: Path) -> None:
    """And does not keep the server from starting."""
    path = key_file(tmp_path, {"name": "ann", "key": ANN, "tokens_per_day": 8})
    usage_path(path).write_bytes(content)
    async with scripted_server(says({}), config_of(path)) as client:
        with_clocks(client)
        async with kept_usage(str(path), client.state.quotas):
            reply = await client.post(COMPLETIONS, ONE, headers=bearer(ANN))

    assert reply.status == 200


async def test_requests_at_a_time_are_bounded(tmp_path: Path) -> None:
    """A stream counts until its end."""
    path = key_file(tmp_path, {"name": "ann", "key": ANN, "concurrent_requests": 1})
    async with scripted_server(config=config_of(path), **ROOM_FOR_ENDLESS) as client:
        beside = await client.while_it_streams(
            COMPLETIONS,
            {"prompt": "hi"},
            lambda: client.post(COMPLETIONS, ONE, headers=bearer(ANN)),
            headers=bearer(ANN),
        )
        after = await client.post(COMPLETIONS, ONE, headers=bearer(ANN))

    assert (beside.status, after.status) == (429, 200)
    assert int(beside.headers["retry-after"]) >= 1


async def test_a_key_has_a_best_priority(tmp_path: Path) -> None:
    """Its requests may be worse, never better."""
    path = key_file(tmp_path, {"name": "ann", "key": ANN, "priority": 5})
    async with scripted_server(
        config=config_of(path, admin_api_key=("boss",)),
        scheduler={"scheduling_policy": "priority"},
        **ROOM_FOR_ENDLESS,
    ) as client:
        seen = []
        for asked in (0, 9):
            view = await client.while_it_streams(
                COMPLETIONS,
                {"prompt": "hi", "priority": asked},
                lambda: client.get("/debug/kv", headers=bearer("boss")),
                headers=bearer(ANN),
            )
            seen.append(view.json["requests"][0]["priority"])

    assert seen == [5, 9]


async def test_a_key_has_a_best_priority_for_vectors_too(
    tmp_path: Path, encoder_folder: MakeFolder
) -> None:
    path = key_file(tmp_path, {"name": "ann", "key": ANN, "priority": 5})
    config = config_of(path, admin_api_key=("boss",))
    seen: list[int] = []
    async with pooling_server(
        encoder_folder("bert"), config, scheduling_policy="priority", max_num_seqs=1
    ) as client:
        body = {"input": [[0, 17, 44, 2]] * 200, "priority": 0}
        asking = asyncio.ensure_future(client.post("/v1/embeddings", body, headers=bearer(ANN)))
        while not seen:
            view = (await client.get("/debug/kv", headers=bearer("boss"))).json
            seen += [request["priority"] for request in view["requests"]]
        await asking

    assert set(seen) == {5}


# ---- the file changes


async def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """At most once a second; a removed key opens nothing any more."""
    path = key_file(tmp_path, {"name": "ann", "key": ANN})
    async with scripted_server(config=config_of(path)) as client:
        clock, _ = with_clocks(client)

        async def statuses() -> list[int]:
            keys = (ANN, BEN)
            return [(await client.get("/v1/models", headers=bearer(key))).status for key in keys]

        before = await statuses()
        key_file(tmp_path, {"name": "benjamin", "key": BEN})
        at_once = await statuses()
        clock.advance(LOOK_EVERY_S)
        later = await statuses()
        key_file(tmp_path, {"name": "ann", "key": ANN})
        client.state.keys.read_again()
        told = await statuses()

    assert (before, at_once, later, told) == ([200, 401], [200, 401], [401, 200], [200, 401])


@pytest.mark.parametrize("content", ["{", '{"keys": [{}]}', None])
async def test_a_file_that_becomes_wrong_changes_nothing(
    content: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The keys before it stay, and the log says so once."""
    path = key_file(tmp_path, {"name": "ann", "key": ANN})
    async with scripted_server(config=config_of(path)) as client:
        clock, _ = with_clocks(client)
        if content is None:
            path.unlink()
        else:
            path.write_text(content)
        found = []
        for _ in range(3):
            clock.advance(LOOK_EVERY_S)
            found.append((await client.get("/v1/models", headers=bearer(ANN))).status)

    assert found == [200] * 3
    assert len([text for text in caplog.messages if "stay as they were" in text]) == 1


@pytest.mark.parametrize(
    ("records", "told"),
    [
        ([{"name": "a b", "key": ANN}], r"keys\[0\]\.name must be a text that matches .*, got"),
        (
            [{"name": "ann", "key": ANN, "scopes": ["everything"]}],
            r'scopes\[0\] must be "admin", "batches", "inference" or "metrics", got',
        ),
        (
            [{"name": "ann", "key": ANN, "requests_per_minute": 0}],
            "requests_per_minute must be at least 1, got 0",
        ),
        (
            [{"name": "ann", "key": ANN}, {"name": "ben", "key": BEN, "priority": "high"}],
            r"keys\[1\]\.priority must be a whole number, got a text",
        ),
        (
            [{"name": "ann", "key": ANN, "scopes": "batches"}],
            "scopes must be a list, got a text",
        ),
        (
            [{"name": "ann", "key": ANN, "request_per_minute": 1}],
            r"keys\[0\]\.request_per_minute is not known; did you mean requests_per_minute",
        ),
        ([{"key": ANN}], r"keys\[0\]\.name is missing"),
        ([{"name": "ann", "key": ANN}, {"name": "ann", "key": BEN}], "same name"),
        ([{"name": "ann", "key": ANN}, {"name": "ben", "key": ANN}], "same sha256"),
    ],
)
def test_a_wrong_file_ends_the_start(
    records: list[dict[str, Any]], told: str, tmp_path: Path
) -> None:
    """By the name of the place."""
    with pytest.raises(ConfigError, match=told):
        KeyRing(config_of(key_file(tmp_path, *records)))


@pytest.mark.parametrize(
    "record",
    [
        {"name": SECRET, "sha256": "0"},
        {"name": "ann", "sha256": SECRET},
        {"name": "ann", "sha256": "0" * 64, "scopes": [SECRET]},
        {"name": "ann", "sha256": "0" * 64, "priority": SECRET},
        {"name": "ann", "sha256": "0" * 64, SECRET: "inference"},
    ],
)
def test_no_text_of_a_wrong_file_is_told(record: dict[str, Any], tmp_path: Path) -> None:
    """Somebody may have put a key where its hash belongs."""
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [record]}))

    with pytest.raises(ConfigError) as caught:
        read_keys(path)

    assert "keys[0]" in str(caught.value)
    assert SECRET not in str(caught.value)


# ---- the command


@pytest.mark.parametrize("name", ["keys.yaml", "keys.json"])
async def test_the_command_makes_keys_that_open_a_server(
    name: str, tmp_path: Path, capsys: Capture
) -> None:
    """The key is shown once and never kept; the file is its owner's."""
    path = tmp_path / name
    flags = ["--api-keys-file", str(path)]
    assert main(["keys", "add", "ann", "--tokens-per-day", "1k", *flags]) == 0
    key = capsys.readouterr().out.strip()
    assert main(["keys", "add", "ops", "--scope", "admin", "metrics", *flags]) == 0
    capsys.readouterr()
    assert main(["keys", "list", *flags]) == 0
    listed = capsys.readouterr().out
    async with scripted_server(config=config_of(path)) as client:
        opened = (await client.get("/v1/models", headers=bearer(key))).status
    again = main(["keys", "add", "ann", *flags])
    assert main(["keys", "remove", "ann", *flags]) == 0
    unknown = main(["keys", "remove", "ann", *flags])

    assert (opened, again, unknown) == (200, 2, 2)
    assert "ann" in listed
    assert "admin metrics" in listed
    assert key not in path.read_text() + listed
    assert os.stat(path).st_mode & 0o077 == 0
    assert [record.name for record in read_keys(path)] == ["ops"]
