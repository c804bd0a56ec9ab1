"""The examples, run as their readers run them: official clients against a real server."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.client_packages import client_programs
from tests.support.data import minilm_folder, smollm2_path
from tests.support.node_packages import node_folder
from tests.support.server_process import ServerProcess, serving

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TIMEOUT_S = 120
OPENAI_NPM = "openai@6.9.1"
PERSON = re.compile(r"Person\(name='.{1,30}', age=\d{1,3}, mood='(glad|sad|angry)'\)")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The default model with everything that the examples ask for."""
    store = tmp_path_factory.mktemp("batches") / "batches.sqlite"
    with serving(
        str(smollm2_path()),
        *("--max-model-len", "2048", "--batch-store", str(store)),
        *("--enable-tokenizer-info-endpoint", "--served-model-name", "smollm2:135m"),
    ) as running:
        yield running


def run(command: list[str], server: ServerProcess, **variables: str) -> str:
    """What an example prints; its failure is the test's."""
    finished = subprocess.run(
        command,
        cwd=EXAMPLES,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr + server.log[-2000:]
    return finished.stdout


def run_python(name: str, server: ServerProcess) -> dict[str, str]:
    """The lines of an example by what stands before their colon."""
    return by_name(run_python_text(name, server))


def run_python_text(name: str, server: ServerProcess) -> str:
    """What an example in Python prints, with the clients that the tests have or those of others."""
    is_ours = name.partition("_")[0] in ("openai", "anthropic", "ollama")
    python = sys.executable if is_ours else str(client_programs() / "python")
    return run([python, f"{name}.py", server.url], server)


def with_programs(folder: Path) -> str:
    """PATH that finds the programs of a folder first."""
    return os.pathsep.join([str(folder), os.environ["PATH"]])


def by_name(text: str) -> dict[str, str]:
    """`name: value` lines; others belong to the line before them."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        head, colon, value = line.partition(":")
        if colon and re.fullmatch(r"[a-z][\w ]*", head):
            name = head
            found[name] = value.strip()
        else:
            found[name] = (found.get(name, "") + "\n" + line).strip()
    return found


def test_openais_client_chats(server: ServerProcess) -> None:
    """The stream is the whole answer; three choices come; the likeliest token is the first."""
    said = run_python("openai_chat", server)

    assert said["whole"] == said["streamed"] != ""
    assert re.fullmatch(r"\d+ in, \d+ out", said["usage"])
    assert {"choice 0", "choice 1", "choice 2"} <= said.keys()
    assert said["logprob"].startswith("'")


def test_openais_client_calls_a_tool(server: ServerProcess) -> None:
    """A small model's call is well formed, whole and streamed alike, and its result goes back."""
    said = run_python("openai_tools", server)

    assert re.fullmatch(
        r"get_weather \{'city': '.+', 'unit': '(celsius|fahrenheit)'\}", said["call"]
    )
    assert said["streamed"] == said["call"]
    assert said["result"].startswith("12 degrees")
    assert said["answer"]


def test_openais_client_parses_classes(server: ServerProcess) -> None:
    """parse() and stream() give the class; choices and expressions are kept."""
    said = run_python("openai_structured", server)

    assert PERSON.fullmatch(said["parsed"])
    assert said["streamed"] == said["parsed"]
    assert said["choice"] in ("glad", "sad")
    assert re.fullmatch(r"[1-9][0-9]? years", said["regex"])


def test_openais_client_uses_responses(server: ServerProcess) -> None:
    """A conversation that the server keeps, events of a stream, a parsed answer."""
    said = run_python("openai_responses", server)

    assert said["first"]
    assert said["second"]
    assert said["kept"] == "True"
    assert said["events"]
    assert re.fullmatch(r"\d+ tokens", said["usage"])
    assert re.fullmatch(r"Verdict\(verdict='(good|bad)'\)", said["parsed"])


def test_openais_client_runs_a_batch(server: ServerProcess) -> None:
    """All lines are answered, in the order of the file."""
    text = run([sys.executable, "openai_batches.py", server.url], server)

    assert text.splitlines()[0] == "completed: 3 of 3"
    assert re.findall(r"^(\w+): \S", text, re.MULTILINE) == ["completed", "France", "Japan", "Peru"]


def test_openais_client_embeds() -> None:
    """What is meant is found, not what is spelled alike."""
    with serving(str(minilm_folder())) as embedder:
        text = run([sys.executable, "openai_embeddings.py", embedder.url], embedder)

    assert "numbers per text: 384" in text
    assert "Where is the kitten? -> A cat sleeps on the warm sofa." in text
    assert "What will the weather be? -> It will rain in the mountains tomorrow." in text


def test_openais_client_for_javascript(server: ServerProcess) -> None:
    """The same from Node."""
    folder = node_folder(OPENAI_NPM)
    script = shutil.copy(EXAMPLES / "openai_client.mjs", folder)

    said = by_name(run(["node", str(script), server.url], server))

    assert said["whole"] == said["streamed"] != ""
    assert re.fullmatch(r"paint \{ colour: '(red|green|blue)' \}", said["call"])
    assert re.fullmatch(r"\{ colour: '(red|green|blue)' \}", said["parsed"])
    assert said["response"]


def test_anthropics_client(server: ServerProcess) -> None:
    """A message and its stream, a tool and its result, a count of tokens."""
    said = run_python("anthropic_messages", server)

    assert int(said["tokens"]) > 5
    assert said["whole"] == said["streamed"] != ""
    assert re.fullmatch(r"\d+ in, \d+ out", said["usage"])
    assert re.fullmatch(r"get_weather \{'city': '.*'\}", said["call"])
    assert "'text'" in said["answer"]


def test_ollamas_client(server: ServerProcess) -> None:
    """Its chat, its stream, its format, its list of models."""
    said = run_python("ollama_chat", server)

    assert said["model"].startswith("smollm2:135m [")
    assert said["whole"] == said["streamed"] != ""
    assert re.fullmatch(r"\{'colour': '(red|green|blue)'\}", said["format"])
    assert said["generate"]


def test_langchain(server: ServerProcess) -> None:
    """Chains, streams, batches, tools and structured answers."""
    said = run_python("langchain_chat", server)

    assert said["chain"] == said["streamed"] != ""
    assert re.fullmatch(r"\[\d+, \d+\]", said["batch"])
    assert re.fullmatch(r"\{'animal': '\w+', 'place': '\w+'\}", said["tool"])
    assert re.fullmatch(r"Animal\(animal='\w+', place='\w+'\)", said["parsed"])


def test_litellm(server: ServerProcess) -> None:
    """By the provider that it has for vLLM."""
    said = run_python("litellm_chat", server)

    assert said["whole"] == said["streamed"] != ""
    assert re.fullmatch(r"paint \{'colour': '(red|green|blue)'.*\}", said["call"])
    assert said["text"]


def test_instructor(server: ServerProcess) -> None:
    """Classes by tools and by schemas, and one that grows."""
    text = run_python_text("instructor_person", server)

    for mode in ("TOOLS", "JSON_SCHEMA", "partial"):
        (said,) = re.findall(rf"^{mode}: (.*)$", text, re.MULTILINE)
        assert PERSON.fullmatch(said), mode


def test_the_command_llm(server: ServerProcess, tmp_path: Path) -> None:
    """A model of extra-openai-models.yaml answers, streams, keeps to a schema."""
    script = ["sh", "llm_cli.sh", server.url]
    path = with_programs(client_programs())
    said = by_name(run(script, server, TMPDIR=str(tmp_path), PATH=path))

    assert said["streamed"] == said["whole"] != ""
    assert re.search(r'"age": ?\d+', said["schema"])
    assert said["logged"] == "1"


def test_lm_eval(server: ServerProcess, tmp_path: Path) -> None:
    """Log-likelihoods by echo and logprobs, and answers over both APIs."""
    if importlib.util.find_spec("lm_eval") is None:
        pytest.skip("lm_eval is not installed (pip install '.[harness]'); it brings 600 MB")
    script = ["sh", "lm_eval.sh", server.url]
    path = with_programs(Path(sys.executable).parent)
    text = run(script, server, HF_HOME=str(tmp_path), PATH=path)

    accuracy = re.search(r"facts_choice.*\|acc +\|. +\| *([\d.]+)", text)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.75
    assert len(re.findall(r"facts_write.*contains_answer", text)) == 2
