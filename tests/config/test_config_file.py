"""The file of `--config`: what stands there is taken as it is, or refused with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from octavo.config.config_file import read_config_file
from octavo.config.texts import Shape
from octavo.errors import ConfigError

KNOWN: dict[str, Shape] = {
    "port": "value",
    "revision": "value",
    "api_key": "list",
    "ui": "switch",
    "pooler_config": "object",
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the file lies."""
    return tmp_path / "launch.yaml"


def read(file: Path, text: str) -> dict[str, str | tuple[str, ...]]:
    """The values of a file with this text."""
    file.write_text(text, encoding="utf-8")
    settings = read_config_file(str(file), KNOWN)
    return {name: setting.value for name, setting in settings.items()}


def test_scalars_are_the_texts_that_stand_there(file: Path) -> None:
    """A revision is no number, whatever it looks like."""
    values = read(file, 'port: 8k\nrevision: 1.10\napi_key: [1, "b"]\nui: off\n')
    assert values == {"port": "8k", "revision": "1.10", "api_key": ("1", "b"), "ui": "off"}


def test_a_list_may_be_one_text(file: Path) -> None:
    """With its commas: they may be part of it."""
    assert read(file, "api-key: a,b\n") == {"api_key": ("a,b",)}


def test_objects_have_the_types_of_yaml_and_may_be_given_in_parts(file: Path) -> None:
    """As on the command line."""
    text = "pooler-config: {a: 1, b: [true, x]}\npooler_config.c.d: 2\n"
    [(name, value)] = read(file, text).items()
    assert name == "pooler_config"
    assert json.loads(str(value)) == {"a": 1, "b": [True, "x"], "c": {"d": 2}}


@pytest.mark.parametrize(("text", "value"), [("no-ui: true", "false"), ("no_ui: no", "true")])
def test_switches_have_their_no_form(file: Path, text: str, value: str) -> None:
    """As vLLM's files have it."""
    assert read(file, text) == {"ui": value}


def test_an_empty_file_sets_nothing(file: Path) -> None:
    """Nor does a comment."""
    assert read(file, "# nothing\n") == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port: 1\nprot: 2", ":2: unknown key 'prot'; did you mean port?"),
        ("zzzz: 2", ":1: unknown key 'zzzz'; see --help for the flags"),
        ("no-port: true", ":1: unknown key 'no-port'"),
        ("port: 1\nport: 2", ":2: port is set twice"),
        ("api-key: a\napi_key: b", ":2: api_key is set twice"),
        ("port:", ":1: port has no value; leave the key out for the default"),
        ("port: ~", ":1: port has no value"),
        ("port: [1]", ":1: port takes one value, got a list"),
        ("port: {a: 1}", ":1: port takes one value, got a mapping"),
        ("api-key: [[a]]", ":1: api-key takes one value, got a list"),
        ("port.a: 1", ":1: port.a: port has no parts"),
        ("pooler-config: text\npooler-config.a: 1", ":2: pooler-config.a: the option is set to"),
        ("pooler-config: {a: 2024-01-01}", ":1: a value that JSON does not have"),
        ("- port", "must hold flag names with values, such as port: 8000"),
        ("port: [", "is not valid YAML"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(file: Path, text: str, told: str) -> None:
    """File, line and key."""
    with pytest.raises(ConfigError) as error:
        read(file, text)

    assert told in str(error.value)
    assert str(file) in str(error.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the reason of the system."""
    with pytest.raises(ConfigError, match=r"--config .*none.yaml: cannot be read: No such file"):
        read_config_file(str(tmp_path / "none.yaml"), KNOWN)
