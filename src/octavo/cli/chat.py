"""octavo chat: talk to a running server."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from octavo.cli.client_flags import add_client_flags, client_of, stream_of
from octavo.cli.terminal import questions
from octavo.config.cli_args import Parser


def run(arguments: Sequence[str]) -> int:
    """Ask and answer until the input ends; one answer with `--quick`."""
    parser = Parser(prog="octavo chat", description="Talk to a running server.")
    add_client_flags(parser)
    parser.add_argument("--system", "--system-prompt", help="System message.")
    parser.add_argument("-q", "--quick", metavar="TEXT", help="Ask this, print the answer, end.")
    parsed = parser.parse_args(arguments)
    client = client_of(parsed)
    model = parsed.model_name or client.model()
    messages: list[dict[str, Any]] = []
    if parsed.system:
        messages.append({"role": "system", "content": parsed.system})
    for question in [parsed.quick] if parsed.quick else questions():
        messages.append({"role": "user", "content": question})
        body = {"model": model, "messages": messages}
        answer = _answer(stream_of(parsed, client, "/v1/chat/completions", body))
        messages.append({"role": "assistant", "content": answer})
    return 0


def _answer(chunks: Iterator[dict[str, Any]]) -> str:
    """Print an answer as it comes; returns it whole. Thoughts go to standard error."""
    pieces = []
    for chunk in chunks:
        for choice in chunk["choices"]:
            sys.stderr.write(choice["delta"].get("reasoning") or "")
            sys.stderr.flush()
            piece = choice["delta"].get("content") or ""
            pieces.append(piece)
            sys.stdout.write(piece)
            sys.stdout.flush()
    print()
    return "".join(pieces)
