"""octavo keys add|list|remove: the file of --api-keys-file.

A key is shown once, when it is made; the file keeps its hash. A running server reads the change by
itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from octavo.config.api_keys import (
    FLAG,
    SCOPES,
    KeyRecord,
    hash_of,
    new_key,
    read_keys,
    write_keys,
)
from octavo.config.cli_args import Parser
from octavo.config.wrong_field import wrong_field
from octavo.errors import ConfigError
from octavo.foundation import env
from octavo.foundation.quantities import parse_count
from octavo.weights.durable import exclusive_lock

LIMITS = ("requests_per_minute", "concurrent_requests", "tokens_per_day")
_SHORT = {"requests_per_minute": "requests/min", "concurrent_requests": "at once"}


def run(arguments: Sequence[str]) -> int:
    """Change or show the file."""
    parser = Parser(prog="octavo keys", description="Maintain the keys of a server.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    add = commands.add_parser("add", help="Make a key, and show it once.")
    add.add_argument("name", help="Whose key it is: letters, digits, any of _ . @ -")
    add.add_argument(
        "--scope",
        nargs="+",
        choices=SCOPES,
        default=None,
        help="What it opens [inference batches]; admin opens everything.",
    )
    add.add_argument("--requests-per-minute", metavar="N", help="Default: no limit.")
    add.add_argument("--concurrent-requests", metavar="N", help="Default: no limit.")
    add.add_argument("--tokens-per-day", metavar="N", help="Of prompts and answers.")
    add.add_argument("--priority", metavar="N", help="Best priority of its requests [0].")
    remove = commands.add_parser("remove", help="Forget a key; it opens nothing any more.")
    remove.add_argument("name")
    listed = commands.add_parser("list", help="Show names, scopes and limits.")
    for command in (add, remove, listed):
        command.add_argument(FLAG, dest="path", metavar="PATH", help="The file, YAML or JSON.")
    parsed = parser.parse_args(arguments)
    path = parsed.path or env.flag_value(FLAG)
    if path is None:
        raise ConfigError(f"name the file: {FLAG} PATH, or set {env.flag_variable(FLAG)}")
    return {"add": _add, "remove": _remove, "list": _list}[parsed.command](parsed, Path(path))


def _add(parsed: argparse.Namespace, path: Path) -> int:
    key = new_key()
    fields = {"name": parsed.name, "sha256": hash_of(key)}
    if parsed.scope is not None:
        fields["scopes"] = list(dict.fromkeys(parsed.scope))
    for name in (*LIMITS, "priority"):
        text = getattr(parsed, name)
        if text is not None:
            fields[name] = parse_count(text, "--" + name.replace("_", "-"))
    try:
        record = msgspec.convert(fields, KeyRecord)
    except msgspec.ValidationError as error:
        raise ConfigError(wrong_field(error, KeyRecord, fields)) from None
    with exclusive_lock(_lock_of(path)):
        records = read_keys(path) if path.exists() else ()
        if any(other.name == record.name for other in records):
            raise ConfigError(f"{path} has a key named {record.name!r} already; remove it first")
        write_keys(path, [*records, record])
    print(f"This is the key of {record.name}. It is not kept; copy it now:", file=sys.stderr)
    print(key)
    return 0


def _remove(parsed: argparse.Namespace, path: Path) -> int:
    with exclusive_lock(_lock_of(path)):
        records = read_keys(path)
        kept = [record for record in records if record.name != parsed.name]
        if len(kept) == len(records):
            known = ", ".join(record.name for record in records[:20]) or "none"
            raise ConfigError(f"{path} has no key named {parsed.name!r}; known: {known}")
        write_keys(path, kept)
    print(f"The key of {parsed.name} is removed.", file=sys.stderr)
    return 0


def _list(_: argparse.Namespace, path: Path) -> int:
    for record in read_keys(path):
        limits = [
            f"{getattr(record, name)} {_SHORT.get(name, 'tokens/day')}"
            for name in LIMITS
            if getattr(record, name) is not None
        ]
        if record.priority:
            limits.append(f"priority {record.priority}")
        print(f"{record.name:<20} {' '.join(record.scopes):<30} {', '.join(limits)}".rstrip())
    return 0


def _lock_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")
