"""What strangers may do to a server: sizes, origins, malformed HTTP, and what the log keeps."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.server.counting import AnswerCounter
from octavo.server.protocol import bounded_protocol
from octavo.server.routes.refused import NOT_SERVED_PATHS
from octavo.server.tls import Certificates, check_tls, tls_options
from tests.support.asgi import Client, scripted_server
from tests.support.asgi_socket import listening_as, plain_config
from tests.support.certificates import make_certificate

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MARK = "the-secret-of-the-prompt"
KEY = "key-that-nobody-may-see"
MAX_ERROR_BYTES = 10_000


# ---- errors


def bad_bodies() -> list[tuple[str, Any]]:
    long = MARK * 400
    hi = {"role": "user", "content": "hi"}
    return [
        (COMPLETIONS, {"prompt": "x", name: long})
        for name in ("temperature", "n", "stop", "seed", "model", "response_format", "logit_bias")
    ] + [
        (COMPLETIONS, {"prompt": "x", "stop": ["s" * 5000]}),
        (COMPLETIONS, {"prompt": "x", "stop": [long] * 100}),
        (COMPLETIONS, {"prompt": "x", "n": 10**6}),
        (COMPLETIONS, {"prompt": "x", "logprobs": 10**6}),
        (COMPLETIONS, {"prompt": "x", "structured_outputs": {"json": "{" * 300 * 1024}}),
        (COMPLETIONS, {"prompt": "x", "structured_outputs": {"regex": "(" * 5000}}),
        (COMPLETIONS, {"prompt": [[1], long]}),
        (COMPLETIONS, {"prompt": [MARK * 10] * 2000}),
        (COMPLETIONS, {"prompt": "x", "logit_bias": {long: 1}}),
        (CHATS, {"messages": [hi | {"role": long}]}),
        (CHATS, {"messages": [hi] * 5000}),
        (CHATS, {"messages": [hi], "tools": [{"type": "function", "function": {"name": long}}]}),
        (CHATS, {"messages": [hi], "tool_choice": long}),
        (CHATS, {"messages": [hi], "reasoning_effort": long}),
        (CHATS, long.encode()),
        (CHATS, ("[" * 60_000).encode()),
        ("/v1/" + long, {}),
    ]


@pytest.mark.parametrize(("path", "body"), bad_bodies())
async def test_an_error_is_small_and_repeats_no_input(path: str, body: Any) -> None:
    """A short value may be named; what somebody sent is not sent back."""
    async with scripted_server() as client:
        reply = await client.post(path, body)

    assert reply.status in (400, 404)
    assert len(reply.content) < MAX_ERROR_BYTES
    assert (MARK * 10).encode() not in reply.content


async def test_a_content_type_cannot_swell_an_error() -> None:
    """Control characters take six bytes each in JSON."""
    async with scripted_server() as client:
        reply = await client.post(COMPLETIONS, {}, headers={"content-type": "\x7f" * 30_000})

    assert reply.status == 415
    assert len(reply.content) < MAX_ERROR_BYTES


async def test_a_chat_may_not_have_too_many_messages() -> None:
    """In every API that takes a chat."""
    message = {"role": "user", "content": "hi"}
    config = ServerConfig(max_messages=2)
    async with scripted_server(config=config, chat_template="{{ messages }}") as client:
        bodies = {
            CHATS: {"messages": [message] * 3},
            "/v1/messages": {"messages": [message] * 3, "max_tokens": 1, "model": "tiny"},
            "/v1/messages/count_tokens": {"messages": [message] * 3, "model": "tiny"},
            "/api/chat": {"messages": [message] * 3, "model": "tiny"},
            "/tokenize": {"messages": [message] * 3},
        }
        replies = [await client.post(path, body) for path, body in bodies.items()]

    assert [reply.status for reply in replies] == [400] * len(bodies)
    assert all("at most 2" in reply.content.decode() for reply in replies)


async def test_what_a_text_engine_cannot_do_is_refused_in_words() -> None:
    """Moderations, images, sound."""
    async with scripted_server() as client:
        for path in NOT_SERVED_PATHS:
            reply = await client.post(path, {"input": "x"})
            assert (reply.status, path in reply.error["message"]) == (404, True)


# ---- the log


async def test_the_log_has_neither_prompts_nor_keys(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whether a request is served, refused, or fails by a fault of ours that quotes it."""
    caplog.set_level(logging.DEBUG, logger="octavo")
    caplog.set_level(logging.INFO, logger="octavo.server.errors")  # at debug it shows all on demand

    async def faulty(*_: object) -> None:
        raise RuntimeError(f"cannot work on {MARK}")

    headers = {"authorization": f"Bearer {KEY}"}
    async with scripted_server(config=ServerConfig(api_key=(KEY,))) as client:
        statuses = [
            (await client.post(COMPLETIONS, {"prompt": MARK, **more}, headers=headers)).status
            for more in ({"max_tokens": 2}, {"temperature": 9}, {"nothing": MARK}, {"stop": [""]})
        ]
        wrong = {"authorization": f"Bearer {KEY}x"}
        statuses.append((await client.post(COMPLETIONS, {"prompt": MARK}, headers=wrong)).status)
        broken = Client(AnswerCounter(faulty, client.state.metrics, frozenset()), client.state)
        statuses.append((await broken.post(COMPLETIONS, {"prompt": MARK})).status)

    written = caplog.text + "".join(capfd.readouterr())
    assert statuses == [200, 400, 200, 400, 401, 500]
    assert "RuntimeError" in written  # the fault itself is there
    assert MARK not in written
    assert KEY not in written


# ---- origins


async def test_no_other_site_may_call_unless_it_is_named() -> None:
    """vLLM's JSON list and plain words alike; a preflight needs no key."""
    page = {"origin": "https://chat.example"}
    ask = page | {"access-control-request-method": "POST"}
    named = ServerConfig(api_key=(KEY,), allowed_origins=('["https://chat.example"]',))
    found = []
    for config in (ServerConfig(api_key=(KEY,)), named):
        async with scripted_server(config=config) as client:
            for method, headers in (("GET", page), ("OPTIONS", ask)):
                reply = await client.send(method, "/v1/models", headers=headers)
                allowed = reply.headers.get("access-control-allow-origin")
                found.append((reply.status, allowed))

    origin = page["origin"]
    assert found == [(401, None), (401, None), (401, origin), (200, origin)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"allowed_origins": ("*",), "allow_credentials": True}, "--allow-credentials"),
        ({"allowed_origins": ("[1]",)}, "--allowed-origins"),
        ({"ssl_keyfile": "k"}, "--ssl-keyfile needs --ssl-certfile"),
        ({"ssl_certfile": "c", "ssl_cert_reqs": 2}, "--ssl-ca-certs"),
        ({"root_path": "no-slash"}, "--root-path"),
        ({"max_file_bytes": 2**20}, "--max-file-bytes needs --batch-store"),
        ({"max_stored_bytes": 2**20}, "--max-stored-bytes needs --batch-store"),
        ({"max_batch_requests": 9}, "--max-batch-requests needs --batch-store"),
        ({"batch_concurrency": 9}, "--batch-concurrency needs --batch-store"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], told: str) -> None:
    """By name, at the start."""
    with pytest.raises(ConfigError, match=told):
        ServerConfig(**options)


# ---- HTTP itself


async def raw(url: str, *pieces: bytes) -> tuple[bytes, bytes]:
    """(head, body) of what comes back until the server closes the connection."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        head, _, body = (await asyncio.wait_for(reader.read(-1), 20)).partition(b"\r\n\r\n")
        return head, body
    finally:
        writer.close()


def checked(head: bytes, body: bytes, status: int) -> dict[str, Any]:
    """The error of a whole answer that closes the connection."""
    lines = head.lower().split(b"\r\n")
    assert lines[0].startswith(b"http/1.1 %d " % status), head
    assert b"connection: close" in lines
    assert b"content-length: %d" % len(body) in lines
    error = json.loads(body)["error"]
    assert error["code"] == status
    return dict(error)


POST = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        ((b"GARBAGE\r\n\r\n",), 400),
        ((b"GET / HTTP/1.1\r\nhost: x\r\nbad header\r\n\r\n",), 400),
        ((POST + b"content-length: nope\r\n\r\n",), 400),
        ((b"GET /health HTTP/1.1\r\nx: " + b"y" * 5000 + b"\r\n\r\n",), 431),
        ((b"GET /health HTTP/1.1\r\nx: ",) + (b"y" * 1000,) * 8, 431),
        ((b"GET /" + b"y" * 3000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",), 414),
        ((POST + b"content-length: 9999999\r\n\r\n", b"x" * 100_000), 413),
        ((POST + b"transfer-encoding: chunked\r\n\r\n", b"ffff\r\n" + b"x" * 65535 + b"\r\n"), 413),
    ],
)
async def test_what_is_too_much_or_no_http_gets_a_whole_answer_and_the_end(
    pieces: tuple[bytes, ...], status: int
) -> None:
    """JSON in the usual form, with its length, and the connection closes."""
    config = ServerConfig(max_header_bytes=2048, max_body_bytes=1024)
    protocol = bounded_protocol(config.max_header_bytes)
    async with (
        scripted_server(config=config) as client,
        listening_as(plain_config(client.app, http=protocol)) as url,
    ):
        head, body = await raw(url, *pieces)

    checked(head, body, status)


async def test_a_large_body_before_the_next_request_is_no_large_head() -> None:
    """Both on one connection, cut anywhere."""
    body = json.dumps({"prompt": "x", "user": "y" * 9000, "max_tokens": 1}).encode()
    request = POST + b"content-length: %d\r\n\r\n" % len(body) + body
    last = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    protocol = bounded_protocol(2048)
    async with (
        scripted_server() as client,
        listening_as(plain_config(client.app, http=protocol)) as url,
    ):
        for cut in (10, len(request) - 8500, len(request) - 10, len(request) + 10):
            data = request + last
            head, rest = await raw(url, data[:cut], data[cut:])
            assert head.startswith(b"HTTP/1.1 200")
            assert b"HTTP/1.1 200 OK" in rest


# ---- TLS


async def test_a_certificate_turns_tls_on_and_can_be_renewed(tmp_path: Path) -> None:
    """New connections get what was loaded last; a broken file changes nothing."""
    certificate, key = make_certificate(tmp_path, "first")
    config = ServerConfig(ssl_certfile=certificate, ssl_keyfile=key)
    check_tls(config)

    async def common_name(url: str) -> str:
        context = ssl.create_default_context(cafile=certificate)
        port = int(url.rpartition(":")[2])
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        subject = writer.get_extra_info("peercert")["subject"]
        writer.close()
        return str(subject[0][0][1])

    async with scripted_server(config=config) as client:
        http = plain_config(client.app, **tls_options(config))
        certificates = Certificates(config, http)
        async with listening_as(http) as url:
            names = [await common_name(url)]
            for name, path in zip(
                make_certificate(tmp_path, "second"), (certificate, key), strict=True
            ):
                Path(path).write_text(Path(name).read_text())
            certificates.load()
            names.append(await common_name(url))
            Path(key).write_text("broken")
            certificates.load()
            names.append(await common_name(url))

    assert names == ["first", "second", "second"]


def test_files_that_are_no_certificate_end_the_start(tmp_path: Path) -> None:
    """By the name of the flag."""
    (tmp_path / "c").write_text("nothing")
    with pytest.raises(ConfigError, match="--ssl-certfile"):
        check_tls(ServerConfig(ssl_certfile=str(tmp_path / "c")))
    with pytest.raises(ConfigError, match="--ssl-certfile"):
        check_tls(ServerConfig(ssl_certfile=str(tmp_path / "none")))
