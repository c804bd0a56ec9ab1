"""Takes the pictures of `docs/images/` anew: the pages in a headless Chromium, the default model.

Answers are drawn with a fixed seed. Needs Chromium and the test extra.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

from tests.support.browser import Page, chromium  # noqa: E402 - the path is set up just above
from tests.support.data import smollm2_path  # noqa: E402
from tests.support.server_process import serving  # noqa: E402

FOLDER = ROOT / "docs" / "images"
SETTINGS = {"temperature": "0", "max_tokens": "220", "seed": "7"}
QUESTIONS = (
    "Give me three short tips for writing clearly.",
    "Write a Python function that reverses a string, with a short explanation.",
)
DONE = "document.querySelector('.message.assistant:last-child[aria-busy=false] .buttons button')"


def ask(page: Page, text: str) -> None:
    """Send a message and wait for the whole answer."""
    page.write("#prompt", text)
    page.press("Enter")
    page.until("document.querySelector('.message:last-child.assistant[aria-busy=true]')")
    page.until(DONE)


def main() -> int:
    """Desktop in both themes, a phone, and the API reference."""
    FOLDER.mkdir(exist_ok=True)
    with (
        chromium() as browser,
        serving(str(smollm2_path()), "--served-model-name", "smollm2:135m") as server,
    ):
        page = browser.new_page()
        kept = json.dumps(json.dumps(SETTINGS))
        page.before_load(f"localStorage['octavo.settings'] ??= {kept}")
        page.look(1180, 760)
        page.open(server.url)
        page.until("document.getElementById('served').textContent")
        for question in QUESTIONS:
            ask(page, question)
        page.screenshot(FOLDER / "chat-light.png")
        page.look(1180, 760, dark=True)
        page.click("#open-settings")
        page.run("document.activeElement.blur()")
        page.screenshot(FOLDER / "chat-dark.png")
        page.click("#close-settings")
        page.look(390, 760, mobile=True)
        page.until("document.getElementById('jump').hidden")
        page.screenshot(FOLDER / "chat-phone.png")
        page.look(1180, 760)
        page.open(server.url + "/docs#create_chat_completion")
        page.click("#create_chat_completion details summary")
        page.screenshot(FOLDER / "api-reference.png")
    for path in sorted(FOLDER.glob("*.png")):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
