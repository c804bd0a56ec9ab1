"""Reading: whose code computes a model, and what is said where nobody's can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from octavo.config.engine import ModelConfig
from octavo.config.keywords import engine_config
from octavo.engine.reading import read_model
from octavo.errors import ConfigError, UnknownArchitectureError
from tests.support.data import smollm2_path
from tests.support.fresh_python import run_fresh
from tests.support.hf_folders import tiny_folder
from tests.support.tiny_tokenizer import tiny_library

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
BOTH = ["llama", "exaone4"]


def ignore(progress: object) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model that Octavo has, and one that it lacks."""
    root = tmp_path_factory.mktemp("models")
    for kind in BOTH:
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **SIZES))
        model.save_pretrained(root / kind)
        tiny_library().save(str(root / kind / "tokenizer.json"))
    return {kind: root / kind for kind in BOTH}


def chosen(folder: Path, **options: Any) -> str:
    """The implementation that is chosen."""
    model = ModelConfig(model=str(folder), **{"backend": "torch", **options})
    return read_model(model, ignore)[1].model_impl


def test_octavos_models_come_first_and_transformers_code_is_for_the_others(
    folders: dict[str, Path],
) -> None:
    """Unless it is asked for."""
    assert chosen(folders["llama"]) == "octavo"
    assert chosen(folders["exaone4"]) == "transformers"
    assert chosen(folders["llama"], model_impl="transformers") == "transformers"
    assert chosen(folders["llama"], model_impl="vllm") == "octavo"
    assert chosen(folders["llama"], backend="native") == "octavo"


def test_a_model_that_octavo_lacks_is_refused_where_only_octavo_may(
    folders: dict[str, Path],
) -> None:
    """The error lists what there is."""
    for name in ("octavo", "vllm"):
        with pytest.raises(UnknownArchitectureError, match="Exaone4ForCausalLM is not supported"):
            chosen(folders["exaone4"], model_impl=name)


def test_on_the_native_back_end_the_error_names_the_other_way(folders: dict[str, Path]) -> None:
    """And what to install for it."""
    told = (
        r"Exaone4ForCausalLM is not supported.*--backend torch.*pip install 'octavo\[transformers"
    )

    with pytest.raises(UnknownArchitectureError, match=told):
        chosen(folders["exaone4"], backend="native")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_impl": "transformers", "backend": "native"}, "transformers needs --backend torch"),
        ({"model_impl": "terratorch"}, "--model-impl must be one of auto, octavo, transformers"),
    ],
)
def test_a_wrong_choice_is_refused_before_a_model_is_looked_for(
    options: dict[str, Any], message: str
) -> None:
    """With the flag to change."""
    with pytest.raises(ConfigError, match=message):
        engine_config({"model": "nowhere", **options})


def test_what_transformers_code_cannot_use_is_refused(folders: dict[str, Path]) -> None:
    """GGUF files, and rounding while loading."""
    with pytest.raises(ConfigError, match=r"reads folders with a config.json, and .*gguf is none"):
        chosen(smollm2_path(), model_impl="transformers")
    with pytest.raises(ConfigError, match="--quantization int8 needs a model of Octavo's"):
        chosen(folders["exaone4"], quantization="int8")


def test_keys_of_config_json_can_be_replaced(folders: dict[str, Path]) -> None:
    """By --hf-overrides, for transformers' configuration as for ours."""
    model = ModelConfig(
        model=str(folders["exaone4"]),
        backend="torch",
        hf_overrides='{"max_position_embeddings": 48}',
    )

    checkpoint, _ = read_model(model, ignore)

    assert checkpoint.facts.max_position == 48


WITHOUT = """
import sys
sys.modules["{module}"] = None
from octavo import LLM
from octavo.errors import ConfigError
try:
    LLM("{folder}", backend="torch", model_impl="transformers")
except ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize("module", ["torch", "transformers"])
def test_without_the_packages_the_error_says_how_to_get_them(tmp_path: Path, module: str) -> None:
    """Whichever is missing."""
    folder = tiny_folder(tmp_path / "m")

    out, _ = run_fresh(WITHOUT.format(module=module, folder=folder))

    assert "--model-impl transformers: install what it needs with pip install 'octavo[" in out
