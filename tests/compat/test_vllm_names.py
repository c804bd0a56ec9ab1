"""`import vllm` after `import octavo.compat.vllm`: names, missing names, and what is printed."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import pickle
from pathlib import Path

import pytest

from octavo.compat.vllm.engine_args import AsyncEngineArgs, EngineArgs
from octavo.compat.vllm.names import MISSING, MODULES
from octavo.compat.vllm.stand_ins import LoRARequest
from octavo.config.cli_args import Parser
from octavo.config.engine import EngineConfig
from octavo.errors import ConfigError, InvalidRequestError
from octavo.logits_processors import AdapterLogitsProcessor
from octavo.version import version
from tests.support.fresh_python import run_fresh, run_python

# Of the inventory of names that scripts import: what this must have, module by module.
PROMISED = {
    "vllm": "LLM SamplingParams PoolingParams EngineArgs AsyncEngineArgs LLMEngine AsyncLLMEngine "
    "RequestOutput CompletionOutput PoolingOutput PoolingRequestOutput EmbeddingOutput "
    "EmbeddingRequestOutput ClassificationOutput ClassificationRequestOutput ScoringOutput "
    "ScoringRequestOutput PromptType TextPrompt TokensPrompt __version__",
    "vllm.sampling_params": "SamplingParams StructuredOutputsParams BeamSearchParams "
    "RequestOutputKind",
    "vllm.lora.request": "LoRARequest",
    "vllm.v1.engine.async_llm": "AsyncLLM",
    "vllm.outputs": "RequestOutput CompletionOutput",
    "vllm.inputs": "TextPrompt TokensPrompt",
    "vllm.logprobs": "Logprob",
    "vllm.distributed": "cleanup_dist_env_and_memory",
    "vllm.engine.arg_utils": "EngineArgs AsyncEngineArgs",
}
LOOK = """
import json, sys
import octavo.compat.vllm
found = {}
for module in json.loads(sys.argv[1]):
    names = json.loads(sys.argv[1])[module]
    space = {}
    for name in names:
        exec(f"from {module} import {name}", space)
        home = space[name]
        found[f"{module}.{name}"] = getattr(home, "__module__", "")
print(json.dumps(found))
"""


def test_every_name_of_the_table_can_be_imported() -> None:
    """And is Octavo's."""
    table = {module: list(names) for module, names in MODULES.items()}
    out, _ = run_fresh(LOOK, json.dumps(table))
    found = json.loads(out)

    assert len(found) == sum(map(len, MODULES.values()))
    homes = {home for name, home in found.items() if home}
    assert {home for home in homes if not home.startswith(("octavo", "types", "typing"))} == set()


def test_the_names_that_scripts_import_are_there() -> None:
    """What a script of vLLM's begins with."""
    for module, names in PROMISED.items():
        assert set(names.split()) <= set(MODULES[module]), module


@pytest.mark.parametrize("name", MISSING)
def test_no_name_is_both_there_and_missing(name: str) -> None:
    """Each row belongs to a module that can be imported."""
    module, _, last = name.rpartition(".")
    assert last not in MODULES[module]
    assert name not in MODULES


def test_what_is_said_of_logits_processors_names_the_class_that_does_it() -> None:
    """Scripts import vLLM's base class from there."""
    words = MISSING["vllm.v1.sample"].replace(";", " ").split()
    [named] = [word for word in words if word.startswith("octavo.")]
    module, _, name = named.rpartition(".")

    assert getattr(importlib.import_module(module), name) is AdapterLogitsProcessor


def test_the_first_import_prints_once_what_is_missing() -> None:
    """Installing the hook alone prints nothing."""
    out, err = run_fresh(
        "import sys, octavo.compat.vllm, octavo.compat.vllm; print('quiet', file=sys.stderr)\n"
        "import vllm, vllm.outputs; from vllm import LLM; import vllm\n"
        "print(vllm.__version__, vllm.__version_tuple__)"
    )
    quiet, head, *lines = err.splitlines()
    assert quiet == "quiet"
    assert head == f"octavo: import vllm is Octavo {version()} here. Not there:"
    assert lines == [f"  {name}: {why}" for name, why in MISSING.items()]
    assert out.startswith("0.28.0+octavo.")


ATTEMPTS = """
import octavo.compat.vllm
import vllm
for code in {codes!r}:
    try:
        exec(code)
    except (AttributeError, ImportError) as error:
        print(type(error).__name__, error)
print(hasattr(vllm, "nope"), vllm.outputs.RequestOutput.__name__, sorted(dir(vllm))[0])
"""


def test_a_missing_name_is_an_error_with_the_reason_and_what_there_is() -> None:
    """Whichever way it is asked for."""
    codes = [
        "from vllm import ModelRegistry",
        "vllm.ModelRegistry",
        "from vllm.sampling_params import GuidedDecodingParams",
        "import vllm.multimodal.inputs",
        "from vllm.v1.metrics.reader import Counter",
        "from vllm import Nonesuch",
    ]
    out, _ = run_fresh(ATTEMPTS.format(codes=codes))
    registry, attribute, guided, media, metrics, none, rest = out.splitlines()

    told = "vllm.ModelRegistry is not in Octavo: see octavo.models.register, for models over the "
    told += "ops of Octavo. vllm has here: Async"
    assert registry.startswith(f"ImportError {told}")
    assert attribute.startswith(f"AttributeError {told}")
    assert guided == (
        "ImportError vllm.sampling_params.GuidedDecodingParams is not in Octavo: use "
        "StructuredOutputsParams. vllm.sampling_params has here: BeamSearchParams, "
        "RequestOutputKind, SamplingParams, StructuredOutputsParams"
    )
    assert media.startswith("ImportError vllm.multimodal is not in Octavo: only text is served.")
    assert metrics.startswith("ImportError vllm.v1.metrics is not in Octavo: a server has them")
    assert none.startswith("ImportError vllm.Nonesuch is not in Octavo. vllm has here: ")
    assert rest == "False RequestOutput AsyncEngineArgs"


def test_a_vllm_that_is_imported_already_is_not_replaced(tmp_path: Path) -> None:
    """Half of a script would use the one and half the other; the hook before it wins."""
    (tmp_path / "vllm.py").write_text("LLM = 'the real one'\n")
    out, _ = run_fresh(
        "import sys; sys.path.insert(0, '.')\n"
        "import vllm\n"
        "try:\n    import octavo.compat.vllm\nexcept ImportError as error:\n    print(error)\n"
        "del sys.modules['vllm']\n"
        "import octavo.compat.vllm, vllm; print(vllm.LLM.__module__)",
        folder=tmp_path,
    )
    assert out.splitlines() == [
        "vllm has been imported already: import octavo.compat.vllm before it",
        "octavo.compat.vllm.engines",
    ]


def test_importing_the_hook_imports_nothing_heavy() -> None:
    """Nor does `import vllm`; each name brings its home."""
    out, _ = run_fresh(
        "import sys, octavo.compat.vllm, vllm, vllm.entrypoints.llm\n"
        "print(sorted({'asyncio', 'msgspec', 'tokenizers', 'yaml'} & set(sys.modules)))"
    )
    assert out == "[]\n"


def test_a_script_runs_as_it_is(tmp_path: Path) -> None:
    """With its arguments, and its own folder for what it imports."""
    (tmp_path / "beside.py").write_text("WORD = 'beside'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, beside\nfrom vllm import SamplingParams\n"
        "if __name__ == '__main__':\n"
        "    print(beside.WORD, sys.argv[1:], SamplingParams.__module__)\n"
    )
    for words in ([str(script)], ["-m", "script"]):
        out, _ = run_python("-m", "octavo.compat.vllm", *words, "--a", "b", folder=tmp_path)
        assert out == "beside ['--a', 'b'] octavo.sampling_params\n"


def test_vllms_server_module_is_octavos() -> None:
    """`-m vllm.entrypoints.openai.api_server`."""
    module = "vllm.entrypoints.openai.api_server"
    out, _ = run_python("-m", "octavo.compat.vllm", "-m", module, "--help")
    assert "usage: octavo serve" in out


def test_without_a_script_the_usage_is_shown() -> None:
    """As a command does."""
    out, _ = run_python("-m", "octavo.compat.vllm", "--help")
    assert out.startswith("usage: python -m octavo.compat.vllm")


def test_an_adapter_is_refused_when_it_is_named() -> None:
    """Before the base model answers in its place."""
    with pytest.raises(InvalidRequestError, match="the adapter 'sql' cannot be used"):
        LoRARequest("sql", 1, "/adapters/sql")


def test_options_of_an_engine_are_an_object() -> None:
    """With every keyword of vLLM's, their defaults where they have some."""
    args = EngineArgs(model="m", max_num_seqs=3, enforce_eager=True)

    assert (args.model, args.max_num_seqs, args.tensor_parallel_size) == ("m", 3, 1)
    assert args.options() == {
        "model": "m",
        "max_num_seqs": 3,
        "enforce_eager": True,
        "disable_log_stats": False,
    }
    config = args.create_engine_config()
    assert (config.model.model, config.scheduler.max_num_seqs) == ("m", 3)
    assert EngineArgs().create_engine_config() == EngineConfig()
    assert EngineArgs(**dataclasses.asdict(args)) == args
    assert pickle.loads(pickle.dumps(args)) == args
    assert isinstance(AsyncEngineArgs(model="m", enable_log_requests=False), EngineArgs)


def test_options_that_cannot_be_had_are_refused_when_an_engine_is_made() -> None:
    """And unknown ones at once."""
    with pytest.raises(ConfigError, match="tensor_parallel_size=2 is not supported"):
        EngineArgs(tensor_parallel_size=2).create_engine_config()
    with pytest.raises(TypeError, match="max_num_sequences"):
        EngineArgs(max_num_sequences=2)


@pytest.mark.parametrize("kind", [argparse.ArgumentParser, Parser])
def test_options_come_from_a_parser_of_the_script(kind: type[argparse.ArgumentParser]) -> None:
    """`EngineArgs.add_cli_args(parser)`, beside the script's own flags."""
    parser = EngineArgs.add_cli_args(kind(prog="script"))
    parser.add_argument("--mine")
    words = ["--model", "m", "--max-num-seqs", "4", "--mine", "x", "--enforce-eager", "-tp", "1"]
    args = EngineArgs.from_cli_args(parser.parse_args(words))

    assert (args.model, args.max_num_seqs, args.enforce_eager) == ("m", 4, True)
    assert args.create_engine_config().scheduler.max_num_seqs == 4


def test_homes_are_modules_of_octavos() -> None:
    """So that the table names nothing that is not there."""
    for names in MODULES.values():
        for name, home in names.items():
            module, _, other = home.partition(":")
            assert hasattr(importlib.import_module(module), other or name)
