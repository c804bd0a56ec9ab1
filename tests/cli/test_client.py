"""`octavo chat` and `octavo complete` against a server that answers as planned."""

from __future__ import annotations

import io
import re
import socket
from collections.abc import Sequence
from typing import Any

import pytest

from octavo.cli.answer_times import line_of
from octavo.cli.main import main
from tests.support.stub_server import StubServer, events, stub_server

Capture = pytest.CaptureFixture[str]


def chat_answer(*pieces: str) -> bytes:
    """A streamed chat answer, with the usage chunk that has no choices."""
    chunks: list[dict[str, Any]] = [{"choices": [{"delta": {"role": "assistant"}}]}]
    chunks += [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    return events([*chunks, {"choices": []}])


def text_answer(*pieces: str) -> bytes:
    """A streamed completion."""
    return events([{"choices": [{"text": piece}]} for piece in pieces])


def failure(capsys: Capture, *words: str) -> tuple[int, str]:
    """Exit code and standard error."""
    code = main(words)
    return code, capsys.readouterr().err


def talk(stub: StubServer, command: str, *words: str) -> int:
    return main([command, "--url", stub.url, *words])


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes lines what a person types, until the end of the input."""

    def lines(words: Sequence[str]) -> None:
        left = iter(words)

        def next_line(_: str) -> str:
            for line in left:
                return line
            raise EOFError

        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("builtins.input", next_line)

    return lines


def test_quick_chat_prints_the_answer_of_the_first_model(capsys: Capture) -> None:
    """With the sampling asked for, and nothing that was not."""
    with stub_server(chat__completions=[chat_answer("Hel", "lo")]) as stub:
        assert talk(stub, "chat", "-q", "Hi", "--system", "Be short.", "--max-tokens", "5") == 0

    assert capsys.readouterr().out == "Hello\n"
    messages = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}]
    assert stub.bodies == [{"model": "tiny", "messages": messages, "max_tokens": 5, "stream": True}]
    assert stub.keys == {None}


def test_thoughts_are_shown_beside_the_answer(capsys: Capture) -> None:
    """A pipe gets the answer alone."""
    thoughts = {"choices": [{"delta": {"reasoning": "Hm."}}]}
    answer = events([thoughts, {"choices": [{"delta": {"content": "Yes"}}]}])
    with stub_server(chat__completions=[answer]) as stub:
        assert talk(stub, "chat", "-q", "Hi") == 0

    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("Yes\n", "Hm.")


@pytest.mark.parametrize(
    ("command", "word", "answer"), [("chat", "chat", chat_answer), ("complete", "", text_answer)]
)
def test_stats_are_a_line_beside_the_answer(
    command: str, word: str, answer: Any, capsys: Capture
) -> None:
    """The tokens are those that the server counted; vLLM's name of the system message works."""
    chunks = answer("Hel", "lo").replace(
        b"data: [DONE]",
        b'data: {"choices": [], "usage": {"completion_tokens": 7}}\n\ndata: [DONE]',
    )
    answers = {f"{word}__completions".removeprefix("__"): [chunks]}
    extra = ["--system-prompt", "Be short."] if command == "chat" else []
    with stub_server(**answers) as stub:
        assert talk(stub, command, "-q", "Hi", "--stats", *extra) == 0

    shown = capsys.readouterr()
    assert shown.out == "Hello\n"
    assert re.fullmatch(
        r"\nfirst token after \d+ ms, 7 tokens in \d+\.\d\d s, [\d.]+ tokens/s\n", shown.err
    )
    assert stub.bodies[0]["stream_options"] == {"include_usage": True}


def test_the_line_of_stats_has_what_is_known() -> None:
    """The first token is not part of the rate."""
    assert line_of(1.0, 1.5, 3.5, {"completion_tokens": 5}) == (
        "\nfirst token after 500 ms, 5 tokens in 2.50 s, 2.0 tokens/s"
    )
    assert line_of(1.0, None, 3.5, {"completion_tokens": 0}) == "\n0 tokens in 2.50 s"
    assert line_of(1.0, None, 3.5, {}) == "\nno tokens"


def test_a_conversation_carries_its_history(capsys: Capture, typed: Any) -> None:
    """Blank lines are no questions."""
    typed(["One?", "  ", "Two?"])
    with stub_server(chat__completions=[chat_answer("1"), chat_answer("2")]) as stub:
        assert talk(stub, "chat", "--model-name", "other") == 0

    assert capsys.readouterr().out == "1\n2\n\n"
    assert [len(body["messages"]) for body in stub.bodies] == [1, 3]
    assert stub.bodies[1]["messages"][1] == {"role": "assistant", "content": "1"}
    assert stub.bodies[1]["model"] == "other"


def test_a_pipe_is_one_prompt(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """All lines of it."""
    monkeypatch.setattr("sys.stdin", io.StringIO("Once\nupon\n"))
    with stub_server(completions=[text_answer(" a", " time")]) as stub:
        assert talk(stub, "complete", "--temperature", "0", "--seed", "7") == 0

    assert capsys.readouterr().out == " a time\n"
    assert stub.bodies[0]["prompt"] == "Once\nupon"
    assert (stub.bodies[0]["temperature"], stub.bodies[0]["seed"]) == (0.0, 7)


def test_the_key_may_be_a_flag_or_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flag wins."""
    monkeypatch.setenv("OCTAVO_API_KEY", "from-env")
    for words, key in (((), "from-env"), (("--api-key", "from-flag"), "from-flag")):
        with stub_server(completions=[text_answer("x")]) as stub:
            assert talk(stub, "complete", "-q", "a", *words) == 0
        assert stub.keys == {f"Bearer {key}"}


@pytest.mark.parametrize("form", ["{}", "{}/", "{}/v1", "{}/v1/"])
def test_the_url_may_end_like_the_openai_base_url(form: str, capsys: Capture) -> None:
    """The same text works for both clients; the scheme may be left out."""
    with stub_server(completions=[text_answer("x")]) as stub:
        url = form.format(stub.url.removeprefix("http://"))
        assert main(["complete", "--url", url, "-q", "a"]) == 0


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://host:port", "http://[::1"])
def test_a_url_that_is_none_is_refused(url: str, capsys: Capture) -> None:
    """As a wrong command line."""
    code, err = failure(capsys, "chat", "--url", url, "-q", "a")
    assert code == 2
    assert err == f"octavo: --url must look like http://127.0.0.1:8000, got {url!r}\n"


def test_no_server_is_a_sentence(capsys: Capture) -> None:
    """With what to do about it."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        code, err = failure(capsys, "chat", "--url", url, "-q", "a")
    assert code == 1
    assert err.startswith(f"octavo: no server at {url}: ")
    assert err.endswith("Start one with: octavo serve\n")


@pytest.mark.parametrize(
    ("body", "said"),
    [(b'{"error": {"message": "a valid key is needed"}}', "a valid key is needed"),
     (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
     (b"", "no explanation")],
)  # fmt: skip
def test_an_error_status_is_told_with_its_message(body: bytes, said: str, capsys: Capture) -> None:
    """Ours, a proxy's, or nothing."""
    with stub_server(completions=[body]) as stub:
        stub.status = 401
        code, err = failure(
            capsys, "complete", "--url", stub.url, "--model-name", "tiny", "-q", "a"
        )
    assert (code, err) == (1, f"octavo: 401: {said}\n")


def test_an_error_in_the_stream_ends_the_answer(capsys: Capture) -> None:
    """What came before it is printed."""
    broken = events([{"choices": [{"text": "so far"}]}, {"error": {"message": "engine died"}}])
    with stub_server(completions=[broken]) as stub:
        code = talk(stub, "complete", "-q", "a")
    out, err = capsys.readouterr()
    assert (code, out) == (1, "so far")
    assert err == "octavo: engine died\n"


def test_a_server_of_another_kind_is_noticed(capsys: Capture) -> None:
    """It answers 200 with something else."""
    with stub_server(models=[b"<html></html>"]) as stub:
        code, err = failure(capsys, "chat", "--url", stub.url, "-q", "a")
    assert code == 1
    assert err == f"octavo: {stub.url} does not answer like an OpenAI-compatible server\n"
