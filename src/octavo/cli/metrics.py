"""octavo metrics dashboard|alerts: print what Grafana and Prometheus load."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from octavo.config.cli_args import Parser
from octavo.config.server import METRICS_NAMESPACES
from octavo.observability.files import FILES, text_of


def run(arguments: Sequence[str]) -> int:
    """Print one file."""
    parser = Parser(
        prog="octavo metrics",
        description="Print a Grafana dashboard (JSON, to be imported) or Prometheus alert rules "
        "(YAML, for rule_files) for the metrics of a server.",
    )
    parser.add_argument("kind", choices=tuple(FILES), help="What to print.")
    parser.add_argument(
        "--metrics-namespace",
        choices=METRICS_NAMESPACES,
        default=METRICS_NAMESPACES[0],
        help="The server's --metrics-namespace [%(default)s].",
    )
    parsed = parser.parse_args(arguments)
    sys.stdout.write(text_of(parsed.kind, parsed.metrics_namespace))
    return 0
