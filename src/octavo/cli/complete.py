"""octavo complete: let a running server continue texts."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from octavo.cli.client_flags import add_client_flags, client_of, stream_of
from octavo.cli.terminal import questions
from octavo.config.cli_args import Parser


def run(arguments: Sequence[str]) -> int:
    """Continue each text; one with `--quick`."""
    parser = Parser(prog="octavo complete", description="Let a running server continue texts.")
    add_client_flags(parser)
    parser.add_argument("-q", "--quick", metavar="TEXT", help="Continue this and end.")
    parsed = parser.parse_args(arguments)
    client = client_of(parsed)
    model = parsed.model_name or client.model()
    for prompt in [parsed.quick] if parsed.quick else questions():
        body = {"model": model, "prompt": prompt}
        for chunk in stream_of(parsed, client, "/v1/completions", body):
            for choice in chunk["choices"]:
                sys.stdout.write(choice["text"])
                sys.stdout.flush()
        print()
    return 0
