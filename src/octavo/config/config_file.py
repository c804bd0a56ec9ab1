"""The file of `--config`: a YAML mapping, flag names to values, as vLLM has it.

Owns the form of the file. Every scalar is taken as the text that stands there, so that a revision
of 1.10 stays 1.10; its option says what it means. Does not know which options there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from octavo.config.sources import Setting
from octavo.config.texts import Shape, switch_of
from octavo.config.words import set_in
from octavo.errors import ConfigError
from octavo.foundation.nearest import nearest

_NULL = "tag:yaml.org,2002:null"


def read_config_file(path: str, known: Mapping[str, Shape]) -> dict[str, Setting]:
    """The settings of a file by field name. `known`: options by field name.

    Raises ConfigError that names file, line and key.
    """
    root = _root(path)
    settings: dict[str, Setting] = {}
    for key_node, node in [] if root is None else root.value:
        where = f"{path}:{key_node.start_mark.line + 1}"
        key = str(key_node.value)
        head, _, path_inside = key.partition(".")
        name, is_inverted = _known(head, where, known)
        value: str | tuple[str, ...]
        if path_inside:
            if known[name] != "object":
                raise ConfigError(f"{where}: {key}: {head} has no parts")
            target = _object_of(settings.get(name), where, key)
            set_in(target, path_inside.split("."), _yaml(node, where), f"{where}: {key}")
            value = json.dumps(target)
        elif name in settings:
            raise ConfigError(f"{where}: {key} is set twice")
        else:
            value = _value(node, key, where, known[name])
        if is_inverted:
            value = "false" if switch_of(str(value), f"{where}: {key}") else "true"
        settings[name] = Setting(value, f"in {where}")
    return settings


def _root(path: str) -> yaml.MappingNode | None:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(f"--config {path}: cannot be read: {reason}") from None
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        told = " ".join(str(error).split())[:300]
        raise ConfigError(f"--config {path} is not valid YAML: {told}") from None
    if root is None:
        return None  # nothing is set
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"--config {path} must hold flag names with values, such as port: 8000")
    return root


def _known(key: str, where: str, known: Mapping[str, Shape]) -> tuple[str, bool]:
    """(field name, whether the key is its `no-` form). Raises ConfigError with the closest."""
    name = key.replace("-", "_")
    if name in known:
        return name, False
    positive = name.removeprefix("no_")
    if positive != name and known.get(positive) == "switch":
        return positive, True
    near = nearest(name, known)
    hint = f"did you mean {near[0].replace('_', '-')}?" if near else "see --help for the flags"
    raise ConfigError(f"{where}: unknown key {key[:60]!r}; {hint}")


def _value(node: Any, key: str, where: str, shape: Shape) -> str | tuple[str, ...]:
    """What stands there, in the form that the shape asks for."""
    if node.tag == _NULL:
        raise ConfigError(f"{where}: {key} has no value; leave the key out for the default")
    if shape == "object" and isinstance(node, yaml.MappingNode):
        return json.dumps(_yaml(node, where))
    if shape == "list" and isinstance(node, yaml.SequenceNode):
        return tuple(_scalar(item, key, where) for item in node.value)
    text = _scalar(node, key, where)
    return (text,) if shape == "list" else text


def _scalar(node: Any, key: str, where: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        kind = "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
        raise ConfigError(f"{where}: {key} takes one value, got {kind}")
    return str(node.value)


def _object_of(before: Setting | None, where: str, key: str) -> dict[str, Any]:
    """What a whole object of the same option has set so far."""
    try:
        value = json.loads(str(before.value)) if before is not None else {}
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: {key}: the option is set to something without parts before")
    return value


def _yaml(node: Any, where: str) -> Any:
    """A value of an object, in YAML's own types. Raises ConfigError for what JSON has not."""
    loader = yaml.SafeLoader("")
    try:
        value = loader.construct_document(node)
        json.dumps(value)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        told = " ".join(str(error).split())[:200]
        raise ConfigError(f"{where}: a value that JSON does not have: {told}") from None
    finally:
        loader.dispose()
    return value
