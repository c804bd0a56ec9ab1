"""The flags that the commands which talk to a server share."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from octavo.cli.answer_times import USAGE, timed
from octavo.cli.client import DEFAULT_URL, Client
from octavo.foundation import env
from octavo.foundation.clock import SystemClock


def add_client_flags(parser: argparse.ArgumentParser) -> None:
    """Where the server is, and how to sample."""
    parser.add_argument("--url", default=DEFAULT_URL, help=f"The server [{DEFAULT_URL}].")
    parser.add_argument("--api-key", help="Its key; also OCTAVO_API_KEY.")
    parser.add_argument("--model-name", help="Model name; default: the first the server lists.")
    parser.add_argument("--max-tokens", type=int, help="Longest answer in tokens.")
    parser.add_argument("--temperature", type=float, help="0 for the most likely answer.")
    parser.add_argument("--seed", type=int, help="Repeats an answer.")
    parser.add_argument(
        "--stats", action="store_true", help="Write the times of each answer to standard error."
    )


def client_of(parsed: argparse.Namespace) -> Client:
    """The client for parsed flags."""
    return Client(parsed.url, parsed.api_key or env.flag_value("--api-key"))


def stream_of(
    parsed: argparse.Namespace, client: Client, path: str, body: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """The chunks of an answer with the sampling of the flags, timed if they ask for it."""
    asked = body | sampling_of(parsed)
    if not parsed.stats:
        return client.stream(path, asked)
    return timed(client.stream(path, asked | USAGE), SystemClock())


def sampling_of(parsed: argparse.Namespace) -> dict[str, Any]:
    """The request fields for parsed flags."""
    fields = {
        "max_tokens": parsed.max_tokens,
        "temperature": parsed.temperature,
        "seed": parsed.seed,
    }
    return {name: value for name, value in fields.items() if value is not None}
