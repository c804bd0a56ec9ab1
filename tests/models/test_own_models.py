"""Models of users: what may be registered, where it comes from, and the worked example."""

from __future__ import annotations

import logging
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest

from octavo.config.model_facts import ModelFacts
from octavo.contracts import own_models
from octavo.contracts.own_models import PLUGIN_GROUP, load_plugins
from octavo.errors import ConfigError, UnknownArchitectureError
from octavo.models import register
from octavo.models.llama import Llama
from octavo.models.registry import model_class
from octavo.sizing.config_shape import shape_from_config
from octavo.weights.fields import Fields
from octavo.weights.hf_families import Family
from octavo.weights.hf_folder import open_folder
from octavo.weights.hf_names import HfLayout
from octavo.weights.source import open_checkpoint
from tests.models.conftest import BACKENDS, TinyModel
from tests.support.hf_folders import CONFIG, tiny_folder
from tests.support.step_driver import (
    RunnerSizes,
    StepDriver,
    all_logprobs,
    generate,
    start_runner,
)
from tests.support.tiny_models import PROMPT, VOCAB_SIZE, make_oracle, save_folder

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "adding_a_model"
GUIDE = ROOT / "docs" / "adding-a-model.md"
HERE = __name__
SHOWN = re.compile(r"<!-- (examples/\S+) -->\n```\w+\n(.*?)```\n", re.DOTALL)
LARGEST_DIFFERENCE = 1e-4


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty table, and plugins that have not been called."""
    monkeypatch.setattr(own_models, "_MODELS", {})
    load_plugins.cache_clear()
    yield
    load_plugins.cache_clear()


@dataclass
class Installed:
    """A folder of installed packages."""

    folder: Path

    def add(self, name: str, entry: str) -> None:
        info = self.folder / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{PLUGIN_GROUP}]\n{entry}\n")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return Installed(folder)


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example can be imported."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield
    sys.modules.pop("hunyuan_dense", None)


class Renamed(Llama):
    """Llama whose tensors and keys have other names."""

    family = Family(
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-5},
        lambda facts, keys: facts,
        names={"norm_eps": "rms_norm_eps", "hidden_size": "width"},
    )
    layout = HfLayout(model_parts={"model.last_norm": "model.norm"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreFacts(ModelFacts):
    """With a number that Octavo does not know."""

    my_number: int


def more_facts(facts: ModelFacts, keys: Fields) -> ModelFacts:
    known = {field.name: getattr(facts, field.name) for field in fields(facts)}
    return MoreFacts(**known, my_number=keys.integer("my_number"))


class Counting(Llama):
    """Llama with facts of its own."""

    family = Family({"rms_norm_eps": 1e-6, "tie_word_embeddings": True}, more_facts)


def boom() -> None:
    raise RuntimeError("boom")


def register_renamed() -> None:
    register("RenamedForCausalLM", f"{HERE}:Renamed")


def test_the_guide_shows_the_files_of_the_example() -> None:
    """What a test runs is what readers see."""
    shown = dict(SHOWN.findall(GUIDE.read_text(encoding="utf-8")))

    assert sorted(shown) == [f"examples/adding_a_model/{path.name}" for path in files()]
    for name, text in shown.items():
        assert (ROOT / name).read_text(encoding="utf-8") == text


def files() -> list[Path]:
    return sorted(path for path in EXAMPLE.iterdir() if path.suffix in (".py", ".toml"))


@pytest.mark.parametrize("case", ["hunyuan_dense", "hunyuan_dense_alpha"])
def test_the_example_computes_what_transformers_computes(
    case: str, backend: str, example: None, installed: Installed, tmp_path: Path
) -> None:
    """On both back ends, whole and in chunks, found by the entry point of its package."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (entry,) = project["entry-points"][PLUGIN_GROUP].items()
    installed.add(project["name"], " = ".join(entry))
    oracle = make_oracle(case)
    save_folder(oracle, case, tmp_path / "model")

    model = TinyModel(oracle, open_checkpoint(str(tmp_path / "model")))
    sizes = RunnerSizes()
    driver = StepDriver(start_runner(BACKENDS[backend], model.checkpoint, sizes), sizes)

    for chunks in ([43], [7, 16, 1, 19]):
        ours = all_logprobs(driver, PROMPT, chunks, VOCAB_SIZE)
        assert (model.logprobs - ours).abs().max() < LARGEST_DIFFERENCE, chunks
    expected = model.oracle_greedy(PROMPT[:19], 12)
    assert expected == generate(driver, PROMPT[:19], 12, chunk=3)


def test_a_class_says_how_its_checkpoint_is_read(tmp_path: Path) -> None:
    """Keys and tensors of other names, by `family` and `layout`."""
    register("RenamedForCausalLM", Renamed)
    folder = tiny_folder(tmp_path, architectures=["RenamedForCausalLM"], width=8, hidden_size=None)

    checkpoint = open_folder(folder)

    assert checkpoint.facts.architecture == "RenamedForCausalLM"
    assert (checkpoint.facts.hidden_size, checkpoint.facts.norm_eps) == (8, 1e-5)
    assert model_class("RenamedForCausalLM") is Renamed


def test_facts_may_have_more_than_octavo_knows(backend: str, tmp_path: Path) -> None:
    """A subclass of ModelFacts goes all the way to the model."""
    register("CountingForCausalLM", Counting)
    folder = tiny_folder(tmp_path, architectures=["CountingForCausalLM"], my_number=3)

    checkpoint = open_folder(folder)
    runner = start_runner(BACKENDS[backend], checkpoint, RunnerSizes(max_model_len=32))

    assert isinstance(checkpoint.facts, MoreFacts)
    assert checkpoint.facts.my_number == 3
    assert "my_number=3" in runner.kv_fingerprint


def test_parameters_of_a_registered_model_are_counted() -> None:
    """By `octavo plan`, as of our own."""
    register("CountingForCausalLM", Counting)
    values = CONFIG | {"architectures": ["CountingForCausalLM"], "my_number": 1}

    assert shape_from_config(values, "config.json", "x").architecture == "CountingForCausalLM"


def test_a_model_of_octavos_can_be_replaced(caplog: pytest.LogCaptureFixture) -> None:
    """The last one counts; a change of what was registered is told."""
    register("LlamaForCausalLM", Renamed)
    assert model_class("LlamaForCausalLM") is Renamed

    with caplog.at_level(logging.WARNING):
        register("LlamaForCausalLM", Counting)

    assert model_class("LlamaForCausalLM") is Counting
    assert re.search(r"LlamaForCausalLM was .*Renamed.* and is now .*Counting", caplog.text)


@pytest.mark.parametrize(
    ("architecture", "model", "message"),
    [
        ("", Llama, r"architecture must be a name as in config.json, got ''"),
        (3, Llama, r"architecture must be a name"),
        ("A", "no_colon", r"register A: model must be module:Class, got 'no_colon'"),
        ("A", "module:", r"must be module:Class"),
        ("A", 3, r"the model A: 3 is no model: it must be a class with"),
        ("A", int, r"<class 'int'> is no model"),
    ],
)
def test_what_can_be_no_model_is_refused_at_once(
    architecture: Any, model: Any, message: str
) -> None:
    """With the name and what it should be."""
    with pytest.raises(ConfigError, match=message):
        register(architecture, model)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("no_such_module:C", r"no_such_module cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:Nothing", rf"{HERE} has no Nothing"),
        (f"{HERE}:boom", r"boom at .* is no model"),
    ],
)
def test_a_target_is_looked_at_when_it_is_needed(model: str, message: str) -> None:
    """And the error says which model it was for."""
    register("LazyForCausalLM", model)

    with pytest.raises(ConfigError, match=rf"the model LazyForCausalLM.*{message}"):
        model_class("LazyForCausalLM")


@pytest.mark.parametrize(
    ("attribute", "message"), [("family", "must be a Family"), ("layout", "must be an HfLayout")]
)
def test_what_says_how_to_read_must_be_that(tmp_path: Path, attribute: str, message: str) -> None:
    """The error names the model and the attribute."""
    register("WrongForCausalLM", type("Wrong", (Counting,), {attribute: 3}))
    folder = tiny_folder(tmp_path, architectures=["WrongForCausalLM"], my_number=1)

    with pytest.raises(ConfigError, match=f"WrongForCausalLM: {attribute} {message}"):
        open_folder(folder)


def test_plugins_are_called_once_before_a_model_is_read(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many models a process opens."""
    installed.add("renamed-models", f"renamed = {HERE}:register_renamed")
    folder = tiny_folder(tmp_path / "m", architectures=["RenamedForCausalLM"], width=8)

    assert open_checkpoint(str(folder)).facts.architecture == "RenamedForCausalLM"

    monkeypatch.setattr(own_models, "_MODELS", {})
    with pytest.raises(UnknownArchitectureError):
        open_checkpoint(str(folder))


def test_a_plugin_that_fails_is_named_and_keeps_nobody_from_working(
    installed: Installed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its package is in the warning, and again where its model is missing."""
    installed.add("broken-models", f"broken = {HERE}:boom")
    installed.add("gone-models", "gone = no_such_module:register")
    installed.add("class-models", f"klass = {HERE}:Renamed")
    installed.add("renamed-models", f"renamed = {HERE}:register_renamed")
    told = rf"plugin broken of the package broken-models \({HERE}:boom\).*RuntimeError: boom"

    open_checkpoint(str(tiny_folder(tmp_path / "llama")))

    assert re.search(told, caplog.text)
    assert re.search(r"gone of the package gone-models.*ModuleNotFoundError", caplog.text)
    assert re.search(r"class-models.*must be a function without arguments", caplog.text)
    assert own_models.registered_names() == ["RenamedForCausalLM"]
    with pytest.raises(UnknownArchitectureError, match=told):
        open_checkpoint(str(tiny_folder(tmp_path / "x", architectures=["MissingForCausalLM"])))
