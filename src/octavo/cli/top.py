"""octavo top: a live view of a running server: its requests, its KV blocks and its rates."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from octavo.cli.client import DEFAULT_URL, Client, ServerError
from octavo.cli.screen import Screen
from octavo.cli.top_frame import frame, waiting_frame
from octavo.cli.top_reading import Reading, read
from octavo.config.cli_args import Parser
from octavo.errors import ConfigError
from octavo.foundation import env

SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S = 0.05, 86400
PAGE = (120, 60)  # columns and lines where there is no terminal
KEY_STATUSES = (401, 403, 404)  # asking again would not help


def run(arguments: Sequence[str]) -> int:
    """Show frames until Ctrl-C; with `--once` print one."""
    parser = Parser(
        prog="octavo top",
        description="Watch the requests and KV blocks of a running server.",
    )
    parser.add_argument("--url", default=DEFAULT_URL, help=f"The server [{DEFAULT_URL}].")
    parser.add_argument(
        "--api-key", help="An admin key of the server, if it has any; also OCTAVO_ADMIN_API_KEY."
    )
    parser.add_argument("--interval", type=float, default=1.0, help="Seconds between frames [1].")
    parser.add_argument("--once", action="store_true", help="Print one frame and end.")
    parsed = parser.parse_args(arguments)
    if not SHORTEST_INTERVAL_S <= parsed.interval <= LONGEST_INTERVAL_S:
        raise ConfigError(
            f"--interval must be at least {SHORTEST_INTERVAL_S} and at most {LONGEST_INTERVAL_S} "
            f"seconds, got {parsed.interval}"
        )
    client = Client(parsed.url, parsed.api_key or env.flag_value("--admin-api-key"))
    if parsed.once or not sys.stdout.isatty():
        print("\n".join(frame(read(client), None, PAGE)))
        return 0
    try:
        with Screen() as screen:
            watch(client, screen, parsed.interval)
    except KeyboardInterrupt:
        return 0


def watch(client: Client, screen: Screen, interval_s: float) -> NoReturn:
    """Draw frames for ever. A server that does not answer is asked again.

    Raises ServerError when it answers that it will not.
    """
    before: Reading | None = None
    while True:
        try:
            now = read(client)
        except ServerError as error:
            if error.status in KEY_STATUSES:
                raise
            before = None  # it may be another one when it comes back
            screen.show(waiting_frame(str(error), screen.size))
        else:
            screen.show(frame(now, before, screen.size, is_coloured=True))
            before = now
        screen.wait(interval_s)
