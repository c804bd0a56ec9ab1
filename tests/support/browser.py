"""A headless Chromium, driven over its DevTools pipe: no driver, no library.

`chromium()` skips the test where there is no Chromium. Waiting is for conditions of the page, which
the page itself watches.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WAIT_S = 30
FLAGS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests may run as root; the page is ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "about:blank",
)
_UNTIL = """
new Promise((resolve, reject) => {
  const end = Date.now() + %d;
  const look = () => {
    let found;
    try { found = (() => { return %s; })(); } catch (error) { found = null; }
    if (found) resolve(found === true ? true : String(found));
    else if (Date.now() > end) reject(new Error("this never came true"));
    else setTimeout(look, 20);
  };
  look();
})
"""


class PageError(AssertionError):
    """What a script in the page threw."""


class Page:
    """One tab. Everything that the console and the page's policy complain of is in `complaints`."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session
        self.complaints: list[str] = []

    def command(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol."""
        return self._browser.command(method, parameters, self._session)

    def before_load(self, script: str) -> None:
        """Run a script in each document of this tab before anything of its own."""
        self.command("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, url: str) -> None:
        """Load a page; return when its load event has come."""
        self.command("Page.navigate", url=url)
        self._wait_loaded()

    def reload(self) -> None:
        self.command("Page.reload")
        self._wait_loaded()

    def _wait_loaded(self) -> None:
        self._browser.wait_event("Page.loadEventFired", self._session)

    def run(self, script: str) -> Any:
        """The value of an expression; a promise is awaited."""
        answer = self.command(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            shown = details.get("exception", {}).get("description") or details["text"]
            raise PageError(
                f"{shown}\n  in: {script.strip()[:300]}\n  page said: {self.complaints}"
            )
        return answer["result"].get("value")

    def call(self, function: str, *arguments: Any) -> Any:
        """The value of a JavaScript function for arguments that JSON can hold."""
        return self.run(f"({function})({', '.join(map(json.dumps, arguments))})")

    def until(self, condition: str) -> Any:
        """Wait until an expression is true; its value as a text."""
        return self.run(_UNTIL % (WAIT_S * 1000, condition))

    def click(self, selector: str) -> None:
        """Wait for an element and click it."""
        found = json.dumps(selector)
        self.until(f"document.querySelector({found})")
        self.run(f"document.querySelector({found}).click()")

    def write(self, selector: str, text: str) -> None:
        """Put the focus on a field and type into it, as the keyboard would."""
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.command("Input.insertText", text=text)

    def press(self, key: str) -> None:
        """One key that is named as KeyboardEvent.key has it."""
        code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, 0)
        fields: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        self.command("Input.dispatchKeyEvent", type="keyDown", **fields, **text)
        self.command("Input.dispatchKeyEvent", type="keyUp", **fields)

    def text(self, selector: str) -> str:
        """The text of the last element that the selector finds."""
        found: str = self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})].at(-1).innerText"
        )
        return found

    def look(self, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> None:
        """Size of the window, and the theme that the system prefers."""
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if mobile else 1,
            mobile=mobile,
        )
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.command("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, path: Path) -> None:
        """What is seen now, as PNG."""
        answer = self.command("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(answer["data"]))

    def note(self, event: dict[str, Any]) -> None:
        """Keep what is a complaint."""
        parameters = event["params"]
        if event["method"] == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif event["method"] == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            entry = parameters["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")


class Browser:
    """The process; commands go down one pipe, answers and events come up the other."""

    def __init__(self, program: str, profile: str) -> None:
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        # The browser reads file 3 and writes file 4.
        line = f'exec "$0" "$@" 3<&{to_read} 4>&{from_write}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", line, program, f"--user-data-dir={profile}", *FLAGS],
            pass_fds=(to_read, from_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(from_write)
        self._to = os.fdopen(to_write, "wb", buffering=0)
        self._from = os.fdopen(from_read, "rb", buffering=0)
        self._rest = b""
        self._last_id = 0
        self._pages: dict[str, Page] = {}
        self._events: list[tuple[str, str | None]] = []

    def new_page(self) -> Page:
        """An empty tab with a storage of its own."""
        context = self.command("Target.createBrowserContext", {})["browserContextId"]
        made = {"url": "about:blank", "browserContextId": context}
        target = self.command("Target.createTarget", made)["targetId"]
        session = self.command("Target.attachToTarget", {"targetId": target, "flatten": True})
        page = self._pages[session["sessionId"]] = Page(self, session["sessionId"])
        for domain in ("Page", "Runtime", "Log"):
            page.command(f"{domain}.enable")
        page.look(1280, 800)
        return page

    def command(
        self, method: str, parameters: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        """The result of one command. Raises AssertionError with the browser's words."""
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._last_id:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result

    def wait_event(self, method: str, session: str) -> None:
        """Return when an event has come that nobody has waited for yet."""
        while (method, session) not in self._events:
            self._next()
        self._events.remove((method, session))

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = self._from.read(1 << 20)
            assert piece, "the browser has ended"
            self._rest += piece
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            session = message.get("sessionId")
            if message["method"] == "Page.loadEventFired":
                self._events.append((message["method"], session))
            if session in self._pages:
                self._pages[session].note(message)
        return message

    def close(self) -> None:
        """End the process and its children."""
        self._to.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._from.close()


def program() -> str:
    """The browser. Skips the test where there is none."""
    named = os.environ.get("CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("no Chromium: apt-get install chromium, or name one in $CHROMIUM")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser with a fresh profile."""
    path = program()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(path, profile)
        try:
            yield browser
        finally:
            browser.close()
