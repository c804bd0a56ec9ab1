"""octavo run-batch: a file of requests becomes a file of answers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octavo.cli.main import main
from octavo.cli.run_batch import run_lines
from octavo.compat.vllm.command import main as vllm
from octavo.server.app import bare_app
from tests.support.asgi import scripted_server
from tests.support.batches import line
from tests.support.scripted_engine import says
from tests.support.tiny_encoders import make_encoder, save_encoder

Capture = pytest.CaptureFixture[str]
ANSWERS = says({"One": " two", "Two": " three four five"})


async def outcome(content: bytes, **engine: Any) -> tuple[list[dict[str, Any]], int]:
    """(lines of the output, how many of them failed)."""
    target = io.BytesIO()
    async with scripted_server(ANSWERS, **engine) as client:
        tally = await run_lines(client.state, bare_app(client.state), io.BytesIO(content), target)
    lines = [json.loads(text) for text in target.getvalue().splitlines()]
    assert len(lines) == tally.num_done
    return lines, tally.num_failed


async def test_answers_come_in_the_order_of_the_input() -> None:
    """However long each takes, and with more lines than may run at once."""
    content = b"".join(line(str(number), prompt=("One", "Two")[number % 2]) for number in range(40))
    lines, num_failed = await outcome(content, scheduler={"max_num_seqs": 3})

    assert [one["custom_id"] for one in lines] == [str(number) for number in range(40)]
    assert num_failed == 0
    assert {one["response"]["body"]["choices"][0]["text"] for one in lines} == {
        " two",
        " three four five",
    }


async def test_a_bad_line_fails_alone() -> None:
    """Whatever is wrong with it; the error is where vLLM has it."""
    content = b"{\n" + line("url", url="/v1/nope") + line("hot", prompt="One", temperature=9)
    content += b"\n" + line("good", prompt="One")
    lines, num_failed = await outcome(content)
    broken, url, hot, good = lines

    assert num_failed == 3
    assert broken["error"]["code"] == "invalid_line"
    assert (url["custom_id"], url["response"]) == ("url", None)
    assert hot["response"]["status_code"] == 400
    assert hot["error"]["error"]["param"] == "temperature"
    assert (good["error"], good["response"]["status_code"]) == (None, 200)


@pytest.mark.parametrize("form", ["bytes", "bytes_only"])
async def test_vectors_in_bytes_are_no_line(form: str) -> None:
    """They would not be JSON; the form is refused by the name of the field."""
    content = line("a", url="/v1/embeddings", input="One", encoding_format=form)
    [refused], num_failed = await outcome(content)

    assert num_failed == 1
    assert (refused["custom_id"], refused["response"]) == ("a", None)
    assert "body.encoding_format must be float or base64" in refused["error"]["message"]


async def test_an_empty_file_is_an_empty_file() -> None:
    """No line, no failure."""
    assert await outcome(b"\n") == ([], 0)


@pytest.mark.parametrize(
    ("command", "content", "code"),
    [
        (main, line("url", url="/v1/nope"), 1),
        (vllm, line("url", url="/v1/nope"), 0),
        (vllm, line("stream", prompt="One", stream=True), 0),
        (vllm, b"{\n", 1),
    ],
)
def test_lines_that_failed_are_in_the_exit_code_but_for_vllms(
    command: Callable[[list[str]], int],
    content: bytes,
    code: int,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    """Whose own command ends well where every line is a request, whatever became of it."""
    folder = save_encoder(make_encoder("bert"), tmp_path / "model")
    (tmp_path / "in").write_bytes(content)
    words = ["run-batch", "-i", str(tmp_path / "in"), "-o", str(tmp_path / "out")]

    assert command([*words, "--model", str(folder)]) == code
    assert "1 lines, 1 of them failed" in capsys.readouterr().err


def test_addresses_are_not_fetched(capsys: Capture) -> None:
    """The input is a local file."""
    code = main(["run-batch", "-i", "http://127.0.0.1/x", "-o", "y", "m"])
    assert (code, "not fetched" in capsys.readouterr().err) == (2, True)


def test_a_missing_input_is_told_before_a_model_is_loaded(tmp_path: Path, capsys: Capture) -> None:
    """By its path."""
    code = main(["run-batch", "-i", str(tmp_path / "none"), "-o", str(tmp_path / "o"), "m"])
    assert (code, "none: No such file" in capsys.readouterr().err) == (2, True)
