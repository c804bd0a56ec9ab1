"""The pages and their files: who gets what, with which headers, and how they are turned off."""

from __future__ import annotations

import re

import pytest

from octavo.config.server import ServerConfig
from octavo.server.pages import (
    ASSET_PATHS,
    DOCS_PATH,
    FOLDER,
    MEDIA_TYPES,
    OPEN_PAGE_PATHS,
    OPENAPI_PATH,
)
from tests.support.asgi import scripted_server

BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
PAGES = ("/", "/docs")


@pytest.mark.parametrize("path", PAGES)
async def test_a_browser_gets_a_page_with_a_strict_policy(path: str) -> None:
    """No inline code, no other hosts, no frames, no markup from text."""
    async with scripted_server() as client:
        reply = await client.get(path, headers=BROWSER)

    assert (200, "text/html; charset=utf-8") == (reply.status, reply.headers["content-type"])
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "nosniff" == reply.headers["x-content-type-options"]


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
async def test_clients_of_ollama_get_its_greeting(accept: str) -> None:
    """They ask for / before anything else, and do not ask for HTML."""
    async with scripted_server() as client:
        reply = await client.get("/", headers={"accept": accept})
        head = await client.send("HEAD", "/")

    assert (200, b"Ollama is running") == (reply.status, reply.content)
    assert "Accept" == reply.headers["vary"]
    assert 200 == head.status


async def test_every_file_that_a_page_names_is_served() -> None:
    """Links of the pages, and imports of their modules."""
    named = set()
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        named |= set(re.findall(r'(?:src|href)="(ui/[^"]+)"', text))
        named |= {f"ui/{name}" for name in re.findall(r'from "\./([^"]+)"', text)}

    assert named
    assert {"/" + name for name in named} <= set(ASSET_PATHS)
    async with scripted_server() as client:
        for path in ASSET_PATHS:
            reply = await client.get(path)
            suffix = "." + path.rpartition(".")[2]
            assert (200, MEDIA_TYPES[suffix]) == (reply.status, reply.headers["content-type"])


def test_the_pages_have_no_inline_code_and_name_no_other_host() -> None:
    """They work offline, under the policy that they are sent with."""
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", text), path
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        urls = {url for url in re.findall(r"https?://[\w.]+", text) if "www.w3.org" not in url}
        assert not urls, path


async def test_the_chat_page_is_open_where_everything_else_wants_a_key() -> None:
    """A browser cannot send a key before there is a page that asks for it."""
    async with scripted_server(config=ServerConfig(api_key=("k",))) as client:
        for path in OPEN_PAGE_PATHS:
            assert (await client.get(path, headers=BROWSER)).status == 200, path
        for path in (DOCS_PATH, OPENAPI_PATH, "/v1/models"):
            assert (await client.get(path, headers=BROWSER)).status == 401, path


@pytest.mark.parametrize("path", ["/ui/../app.py", "/ui/index.html", "/ui/nope.js", "/ui/"])
async def test_no_other_file_can_be_named(path: str) -> None:
    """The paths are fixed when the process starts."""
    async with scripted_server() as client:
        assert (await client.get(path)).status == 404


async def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    """By its hash."""
    async with scripted_server() as client:
        first = await client.get("/ui/app.js")
        again = await client.get("/ui/app.js", headers={"if-none-match": first.headers["etag"]})

    assert (304, b"") == (again.status, again.content)


async def test_no_ui_leaves_the_greeting() -> None:
    """Ollama's clients go on; a browser is told; the reference is another switch."""
    async with scripted_server(config=ServerConfig(ui=False)) as client:
        page = await client.get("/", headers=BROWSER)
        greeting = await client.get("/")
        docs = await client.get("/docs", headers=BROWSER)

    assert b"--no-ui" in page.content
    assert "text/plain; charset=utf-8" == page.headers["content-type"]
    assert (b"Ollama is running", 200) == (greeting.content, docs.status)


async def test_vllms_flag_turns_the_reference_off() -> None:
    """--disable-fastapi-docs: no page, no document; the chat page stays."""
    async with scripted_server(config=ServerConfig(disable_fastapi_docs=True)) as client:
        statuses = [(await client.get(path)).status for path in ("/docs", "/openapi.json", "/")]

    assert [404, 404, 200] == statuses


async def test_with_both_off_no_file_is_left() -> None:
    """Nothing of the pages is served."""
    config = ServerConfig(ui=False, disable_fastapi_docs=True)
    async with scripted_server(config=config) as client:
        assert {404} == {(await client.get(path)).status for path in ASSET_PATHS}
