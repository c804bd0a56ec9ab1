"""Spellings of flags that vLLM takes, rewritten to the one that argparse knows.

    --max_num_seqs 8                    --max-num-seqs 8
    --pooler-config.pooling_type MEAN   --pooler-config '{"pooling_type": "MEAN"}'
    --x.names+ a,b --x.names+ c         --x '{"names": ["a", "b", "c"]}'
    --help=all                          --help

Parts that are given apart are set in the object that the whole flag gives, in their order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from octavo.errors import ConfigError
from octavo.foundation.quantities import parse_count

_FLAG = re.compile(r"--?[A-Za-z].*")


def plain_words(words: Sequence[str], objects: Mapping[str, str]) -> list[str]:
    """The words of a command line. `objects`: every spelling of a flag with parts -> its name.

    Raises ConfigError for a part without a value, or one that its object has no room for.
    """
    end = words.index("--") if "--" in words else len(words)
    plain: list[str] = []
    parts: dict[str, list[tuple[str, str]]] = {}  # flag -> (path, value)
    rest = iter(words[:end])
    for word in rest:
        name, equals, value = word.partition("=")
        if not _FLAG.fullmatch(name):
            plain.append(word)
            continue
        head, _, path = name.partition(".")
        flag = objects.get(_dashed(head))
        if path and flag is not None:
            parts.setdefault(flag, []).append((path, value if equals else _next(rest, name)))
        elif name == "--help":
            plain.append(name)
        else:
            plain.append(_dashed(name) + equals + value)
    return [*_with_parts(plain, parts, objects), *words[end:]]


def set_in(target: dict[str, Any], path: Sequence[str], value: Any, told: str) -> None:
    """Set a part of an object; a list goes on with a list. Raises ConfigError, beginning `told`."""
    *parents, last = path
    for key in parents:
        target = target.setdefault(key, {})
        if not isinstance(target, dict):
            raise ConfigError(f"{told}: {key} has a value and can have no parts")
    if last.endswith("+"):
        before = target.setdefault(last[:-1], [])
        if not isinstance(before, list) or not isinstance(value, list):
            raise ConfigError(f"{told}: {last[:-1]} is no list to go on with")
        before += value
    else:
        target[last] = value


def _dashed(name: str) -> str:
    """`--max_num_seqs` -> `--max-num-seqs`."""
    return "--" + name[2:].replace("_", "-") if name.startswith("--") else name


def _next(rest: Iterator[str], name: str) -> str:
    value = next(rest, None)
    if value is None or value.startswith("--"):
        raise ConfigError(f"{name} needs a value")
    return value


def _with_parts(
    plain: list[str], parts: Mapping[str, list[tuple[str, str]]], objects: Mapping[str, str]
) -> list[str]:
    """The words, with one object for all parts of a flag; a whole one is its beginning."""
    if not parts:
        return plain
    kept: list[str] = []
    targets: dict[str, dict[str, Any]] = {flag: {} for flag in parts}
    rest = iter(plain)
    for word in rest:
        head, equals, value = word.partition("=")
        flag = objects.get(head, "")
        if flag in targets:
            targets[flag] = _object(flag, value if equals else _next(rest, word))
        else:
            kept.append(word)
    for flag, given in parts.items():
        for path, text in given:
            part = text.split(",") if path.endswith("+") else _part_of(text)
            set_in(targets[flag], path.split("."), part, f"{flag}.{path}")
        kept += [flag, json.dumps(targets[flag])]
    return kept


def _object(flag: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{flag} must be a JSON object, got {text[:60]}")
    return value


def _part_of(text: str) -> Any:
    """JSON, a count such as 80g, or the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return parse_count(text, "")
    except ConfigError:
        return text
