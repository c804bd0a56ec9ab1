"""The chat page in a real browser, with a real model behind it.

Skipped where there is no Chromium. Nothing that a model writes can become markup: that is tried
with conversations that lie in the browser's store already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.browser import Browser, Page, chromium
from tests.support.data import smollm2_path
from tests.support.server_process import ServerProcess, serving

KEY = "a-key-of-the-test"
READY = "document.getElementById('served').textContent.length > 0"
DONE = "document.querySelector('.message.assistant:last-child[aria-busy=false] .buttons button')"
CONTRAST = Path(__file__).parents[1] / "support" / "contrast.js"
NEXT_FRAME = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
BUSY = "document.querySelector('.message.assistant[aria-busy=true] > .prose').innerText.length > 20"
HOSTILE = """\
<script>window.harmed = 1</script>
<img src=x onerror="window.harmed = 2"> <svg onload="window.harmed = 3">
[a](javascript:window.harmed=4) [b](data:text/html,x) [c](https://example.com/)
![picture](https://example.com/p.png) <a href="javascript:window.harmed=5">d</a>

| <b>x</b> | y |
|---|---|
| <i>1</i> | `<u>2</u>` |

```html"><script>window.harmed=6</script>
<script>window.harmed = 7</script>
```
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def server(browser: Browser) -> Iterator[ServerProcess]:
    with serving(str(smollm2_path()), "--api-key", KEY, "--max-model-len", "2048") as process:
        yield process


@pytest.fixture
def page(browser: Browser, server: ServerProcess) -> Iterator[Page]:
    """The page with a key, greedy; it must not have complained when the test ends."""
    page = browser.new_page()
    settings = json.dumps({"temperature": "0", "max_tokens": "40"})
    page.before_load(
        f"if (!localStorage.getItem('octavo.settings')) {{"
        f"localStorage.setItem('octavo.settings', {json.dumps(settings)});"
        f"localStorage.setItem('octavo.key', '{KEY}'); }}"
    )
    page.open(server.url)
    page.until(READY)
    yield page
    assert page.complaints == []


def ask(page: Page, text: str) -> str:
    """Send a message and return the answer."""
    page.write("#prompt", text)
    page.press("Enter")
    page.until(DONE)
    return page.text(".message.assistant .prose")


def keep(page: Page, **answer: Any) -> None:
    """Put a conversation with one answer into the browser's store, and show it."""
    page.call(
        """async (answer) => {
          const { Conversations } = await import("/ui/store.js");
          const { newConversation, addMessage } = await import("/ui/conversation.js");
          const store = new Conversations();
          await store.open();
          const one = newConversation();
          const question = addMessage(one, "root", {
            role: "user", content: answer.question ?? "Go on" });
          addMessage(one, question.id, { role: "assistant", content: "", ...answer });
          await store.save(one);
        }""",
        answer,
    )
    page.reload()
    page.until("document.querySelector('.message.assistant')")
    page.until(READY)


def test_an_answer_streams_and_shows_its_tokens_and_times(page: Page) -> None:
    """Text is there before the answer is complete; then counts, first token and speed."""
    page.write("#prompt", "Name three colours.")
    page.press("Enter")
    page.until("document.querySelector('.message.assistant[aria-busy=true]')")
    page.until(DONE)

    stats = page.text(".message.assistant .stats")
    assert "tokens" in stats
    assert "first after" in stats
    assert "tokens/s" in stats
    assert "≈" not in stats  # the server's own count
    assert "Name three colours." == page.text(".message.user .bubble")
    assert "2,048 tokens" in page.text("#context")
    assert "Name three colours." == page.text("#heading")


def test_the_answer_is_told_to_screen_readers_once_it_is_complete(page: Page) -> None:
    """A live region that is spoken word by word would be no help."""
    answer = ask(page, "Name three colours.")

    page.until("document.getElementById('status').textContent.startsWith('Answer: ')")
    assert answer.split("\n")[0][:20] in page.run("document.getElementById('status').textContent")
    assert "off" == page.run("document.getElementById('thread').getAttribute('aria-live')")


def test_stop_ends_the_answer_here_and_at_the_server(page: Page) -> None:
    """What came stays; nothing is computed for it any more."""
    page.run("document.getElementById('max_tokens').value = ''")
    page.run("document.getElementById('max_tokens').dispatchEvent(new Event('input'))")
    page.write("#prompt", "Write a very long story about the sea.")
    page.press("Enter")
    page.until(BUSY)
    page.click("#send")
    page.until(DONE)

    assert "stopped" in page.text(".message.assistant .stats")
    assert len(page.text(".message.assistant .prose")) > 20
    page.run(
        f"""(async () => {{
          for (let tries = 0; tries < 200; tries += 1) {{
            const options = {{ headers: {{ Authorization: "Bearer {KEY}" }} }};
            const text = await (await fetch("/metrics", options)).text();
            if (/num_requests_running\\S* 0/.test(text)) return;
          }}
          throw new Error("it still runs");
        }})()"""
    )


def test_an_edit_is_another_version_and_nothing_is_lost(page: Page) -> None:
    """One can go back to what was asked first, with its answer."""
    first = ask(page, "Name three colours.")
    page.click("[aria-label='Edit and send again']")
    page.run("document.querySelector('.editor textarea').select()")
    page.write(".editor textarea", "Name three animals.")
    page.press("Enter")
    page.until("document.querySelector('.user .bubble')?.innerText === 'Name three animals.'")
    page.until(DONE)
    assert first != page.text(".message.assistant .prose")

    assert "2 / 2" == page.text(".user .versions").strip()
    page.click("[aria-label='Earlier version']")
    page.until("document.querySelector('.user .bubble').innerText === 'Name three colours.'")
    assert first == page.text(".message.assistant .prose")


def test_another_try_is_another_version_of_the_answer(page: Page) -> None:
    """The question stays one."""
    ask(page, "Name three colours.")
    page.click("[aria-label='Answer again']")
    page.until("document.querySelector('.assistant .versions')")
    page.until(DONE)

    assert "2 / 2" == page.text(".assistant .versions").strip()
    assert 1 == page.run("document.querySelectorAll('.message').length - 1")


def test_a_reload_keeps_the_conversation(page: Page) -> None:
    """It lies in the browser, with its counts."""
    answer = ask(page, "Name three colours.")
    stats = page.text(".message.assistant .stats")
    page.reload()
    page.until("document.querySelector('.message.assistant')")

    assert answer == page.text(".message.assistant .prose")
    assert stats == page.text(".message.assistant .stats")


def test_conversations_are_renamed_deleted_and_brought_back(page: Page) -> None:
    """The list does it all, from the keyboard too."""
    keep(page, question="First words", content="Yes.")
    page.click(".entry [aria-label^='Rename']")
    page.run("document.querySelector('.rename').select()")
    page.write(".rename", "A better name")
    page.press("Enter")
    page.until("document.querySelector('.entry .title')?.innerText === 'A better name'")

    page.click(".entry [aria-label^='Delete']")
    page.until("document.querySelector('#conversations .empty')")
    page.click("#toast button")
    page.until("document.querySelector('.entry .title')?.innerText === 'A better name'")


def test_an_exported_conversation_can_be_imported(page: Page) -> None:
    """Markdown is for people, JSON comes back; other files are refused with a reason."""
    shown = page.run(
        """(async () => {
          const c = await import("/ui/conversation.js");
          const one = c.newConversation("Be brief.");
          const question = c.addMessage(one, "root", { role: "user", content: "Hello" });
          c.addMessage(one, question.id, { role: "assistant", content: "Good day." });
          const back = c.checked(JSON.parse(JSON.stringify(one)));
          let refusal = "";
          try { c.checked({ title: "x", system: "", nodes: { root: 1 } }); } catch (e) { refusal = e.message; }
          return [c.markdownOf(back), c.messagesOf(back).map((m) => m.role), back.id !== one.id, refusal];
        })()"""  # noqa: E501
    )

    assert "# Hello\n\n> Be brief.\n\n## You\n\nHello\n\n## Assistant\n\nGood day.\n" == shown[0]
    assert [["system", "user", "assistant"], True] == shown[1:3]
    assert "no conversation" in shown[3]


def test_hostile_markdown_is_shown_as_text(page: Page) -> None:
    """No markup, no picture, no link but to http and https."""
    keep(page, content=HOSTILE, reasoning=HOSTILE)
    prose = "document.querySelector('.assistant .prose:not(.small)')"

    assert page.run("window.harmed === undefined")
    harmful = "script, img, svg:not(.icon), iframe, object, embed, style, b, i, u"
    for part in (".prose", ".reasoning"):
        assert 0 == page.run(
            f"document.querySelector('.assistant {part}').querySelectorAll('{harmful}').length"
        )
    assert ["https://example.com/", "https://example.com/p.png"] == page.run(
        f"[...{prose}.querySelectorAll('a')].map((a) => a.href)"
    )
    assert "<script>window.harmed = 1</script>" in page.text(".assistant .prose:not(.small)")
    assert "[a](javascript:window.harmed=4)" in page.text(".assistant .prose:not(.small)")


def test_text_can_never_become_markup(page: Page) -> None:
    """The page's policy stands behind the renderer: the browser itself refuses."""
    error = page.run(
        "(() => { try { document.body.innerHTML = '<b>x</b>'; return ''; }"
        " catch (error) { return error.name; } })()"
    )

    assert "TypeError" == error
    page.complaints.clear()  # the browser has told of it


def test_markdown_becomes_elements(page: Page) -> None:
    """Each kind of block and mark; what is open while it streams is closed."""
    cases = {
        "# a": "h3",
        "**a** and *b* and `c` and ~~d~~": "p strong + em",
        "- a\n- b\n  1. c": "ul li ol li",
        "> a\n> - b": "blockquote ul li",
        "|a|b|\n|-|-:|\n|1|2|": "table td.right",
        "```py\ndef f(): pass": "figure.code pre code .code-keyword",
        "---": "hr",
        "a  \nb": "p br",
        "- [x] a": "li.task input:checked",
        "see https://example.com/a_b.": "a[href='https://example.com/a_b']",
    }
    found = page.call(
        """async (cases) => {
          const { renderMarkdown } = await import("/ui/markdown.js");
          return Object.entries(cases).filter(([text, selector]) => {
            const box = document.createElement("div");
            renderMarkdown(box, text);
            return !box.querySelector(selector);
          }).map(([text]) => text);
        }""",
        cases,
    )

    assert [] == found


def test_rendering_piece_by_piece_gives_what_rendering_at_once_gives(page: Page) -> None:
    """And blocks that are complete keep their elements."""
    same, kept = page.call(
        """async (text) => {
          const { renderMarkdown } = await import("/ui/markdown.js");
          const [whole, grown] = [document.createElement("div"), document.createElement("div")];
          renderMarkdown(whole, text);
          let first = null;
          let kept = true;
          for (let end = 1; end <= text.length; end += 1) {
            renderMarkdown(grown, text.slice(0, end));
            if (end === 20) first = grown.firstChild;
            if (end > 20) kept &&= grown.firstChild === first;
          }
          return [whole.isEqualNode(grown), kept];
        }""",
        "# Title of it all\n\nSome **text** here.\n\n" + HOSTILE + "\n- a\n\n- b\n",
    )

    assert (True, True) == (same, kept)


def test_hostile_lengths_end_in_time(page: Page) -> None:
    """Texts that make careless renderers quadratic, or recurse without an end."""
    texts = [
        c * 20_000 for c in ("*a ", "[", "`", "> ", "_a_", "![](", "<http://", "| ", "**", "- ")
    ]
    texts += ["```" + "a" * 50_000 + "`", "".join("`" * n + " " for n in range(200))]
    page.call(
        """async (texts) => {
          const { renderMarkdown } = await import("/ui/markdown.js");
          for (const text of texts) renderMarkdown(document.createElement("div"), text);
        }""",
        texts,
    )


def test_a_call_of_a_tool_is_shown_and_takes_its_result(page: Page) -> None:
    """The model goes on with what the reader says that the function returned."""
    call = {"name": "get_weather", "arguments": '{"city": "Paris"}'}
    calls = [{"id": "call-1", "type": "function", "function": call}]
    keep(page, calls=calls, reasoning="I should look it up.", stats={"thoughtMs": 1500})
    assert "Thought for 1.5 s" in page.text(".reasoning summary")
    assert '"city": "Paris"' in page.text(".call pre")
    page.write(".call textarea", "sunny, 21 degrees")
    page.click(".call .primary")
    page.until(
        "document.querySelector('.message.tool')"
        " && document.querySelectorAll('.assistant').length === 2"
    )
    page.until(DONE)

    assert "sunny, 21 degrees" == page.text(".message.tool pre")
    assert not page.run("Boolean(document.querySelector('.call textarea'))")


def test_the_page_asks_for_a_key_where_the_server_does(
    browser: Browser, server: ServerProcess
) -> None:
    """It is kept for this tab, and longer only if its owner says so."""
    page = browser.new_page()
    page.open(server.url)
    page.until("document.activeElement.id === 'key'")
    assert "asks for an API key" in page.text("#notice")
    page.write("#key", KEY)
    page.press("Enter")
    page.run("document.getElementById('key').blur()")
    page.until(READY)

    assert [KEY, None] == page.run(
        "[sessionStorage.getItem('octavo.key'), localStorage.getItem('octavo.key')]"
    )


def test_a_wrong_parameter_is_told_and_nothing_is_sent(page: Page) -> None:
    """By the name that the field has on the page."""
    page.click("#open-settings")
    page.write("#tools", "not JSON")
    page.write("#prompt", "Hello")
    page.press("Enter")
    page.until("!document.getElementById('notice').hidden")

    assert "Tools must be JSON" in page.text("#notice")
    assert not page.run("Boolean(document.querySelector('.message.assistant'))")


def test_an_error_of_the_server_is_shown_where_the_answer_would_be(page: Page) -> None:
    """With the server's own words, and another try beside it."""
    page.run("document.getElementById('top_p').value = '7'")
    page.run("document.getElementById('top_p').dispatchEvent(new Event('input'))")
    page.write("#prompt", "Hello")
    page.press("Enter")
    page.until("document.querySelector('.message .problem:not([hidden])')")

    assert "top_p" in page.text(".message .problem")
    page.complaints.clear()  # the browser tells of the status


def test_every_control_has_a_name_and_every_text_enough_contrast(page: Page) -> None:
    """For screen readers, and for tired eyes: 4.5 to 1, in both themes."""
    keep(
        page,
        content="Some `code` and a [link](https://example.com/).\n\n```py\n# a = 1\n```",
        stats={"tokens": 3},
    )
    page.click("#open-settings")
    nameless = page.run(
        """[...document.querySelectorAll("button, input, select, textarea, a")].filter((one) =>
          one.type !== "file" && !one.closest("[hidden]") &&
          !(one.ariaLabel || one.innerText?.trim() || one.labels?.length)
        ).map((one) => one.outerHTML)"""
    )
    assert [] == nameless
    for dark in (False, True):
        page.look(1280, 900, dark=dark)
        assert [] == page.run(CONTRAST.read_text(encoding="utf-8"))


def test_the_page_stays_at_the_end_until_its_reader_scrolls(page: Page) -> None:
    """A window that changes its size moves nobody away; going back shows the way forward."""
    keep(page, content="A line.\n\n" * 80)
    at_end = (
        "(({ scrollTop, scrollHeight, clientHeight }) =>"
        " scrollHeight - scrollTop - clientHeight < 2)(document.getElementById('scroller'))"
    )
    page.until(at_end)
    for width, height in ((360, 700), (900, 500), (1280, 800)):
        page.look(width, height)
        page.until(f"innerWidth === {width}")
        page.run(NEXT_FRAME)
        page.until(at_end)
    assert page.run("document.getElementById('jump').hidden")
    page.run("document.getElementById('scroller').scrollTop = 100")
    page.until("!document.getElementById('jump').hidden")
    page.click("#jump")
    page.until(at_end)


def test_on_a_phone_a_panel_covers_the_page_and_gives_the_focus_back(page: Page) -> None:
    """Nothing is wider than the screen; what is covered is out of reach."""
    page.look(360, 740, mobile=True)
    page.until("document.getElementById('sidebar').hidden")
    assert page.run("document.documentElement.scrollWidth <= 360")
    page.click("#open-settings")
    assert page.run("document.querySelector('main').inert")
    page.press("Escape")
    page.until("document.getElementById('settings').hidden")

    assert not page.run("document.querySelector('main').inert")


def test_the_reference_shows_every_route(browser: Browser) -> None:
    """From the served document, with its fields; and sends a request."""
    with serving(str(smollm2_path()), "--max-model-len", "2048") as server:
        look_at_reference(browser.new_page(), server)


def look_at_reference(page: Page, server: ServerProcess) -> None:
    page.open(server.url + "/docs")
    page.until("document.querySelector('.operation')")
    number = page.run(
        "fetch('/openapi.json').then((r) => r.json()).then((d) =>"
        " Object.values(d.paths).flatMap(Object.keys).length)"
    )
    assert number == page.run("document.querySelectorAll('.operation').length")
    page.click("#create_chat_completion details:nth-of-type(1) summary")
    page.until("document.querySelector('#create_chat_completion .fields dt')")
    assert "messages" in page.run(
        "document.querySelector('#create_chat_completion .fields dt').innerText"
    )
    page.click("#show_version details:last-of-type summary")
    page.click("#show_version .try button")
    page.until(
        "document.querySelector('#show_version .try [role=status]').innerText.startsWith('200')"
    )
