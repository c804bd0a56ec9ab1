"""Which logits processors an engine has, and which requests they let in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ConfigError, InvalidRequestError
from octavo.logits_processors.loading import (
    PLUGIN_GROUP,
    check_request,
    load_classes,
    with_plugins,
)
from octavo.sampling_params import RequestOutputKind, SamplingParams
from tests.support.asgi import scripted_server
from tests.support.logits_processors import OnlyToken, Watcher
from tests.support.scripted_engine import scripted_engine, scripted_llm

HERE = "tests.support.logits_processors"
GOOD = f"{HERE}:OnlyToken"


def test_classes_are_named_or_given() -> None:
    """On the command line by name, in Python as they are."""
    assert load_classes([GOOD, Watcher]) == (OnlyToken, Watcher)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OnlyToken", r"must be module:Class, got 'OnlyToken'"),
        ("no.such.module:C", r"no.such.module cannot be imported: ModuleNotFoundError"),
        (f"{HERE}:Nothing", rf"{HERE} has no Nothing"),
        (f"{HERE}:partial", r"is no logits processor; derive the class from octavo"),
        (int, r"<class 'int'> is no logits processor"),
    ],
)
def test_a_wrong_name_ends_the_start(name: Any, message: str) -> None:
    """With the flag, the name and the reason."""
    with pytest.raises(ConfigError, match=rf"--logits-processors.*{message}"):
        load_classes([name])


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with one that brings a processor."""
    info = tmp_path / "made_up-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{PLUGIN_GROUP}]\nonly = {GOOD}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return info / "entry_points.txt"


def test_processors_of_installed_packages_are_loaded(installed: Path) -> None:
    """Before those that are named; one that is both comes once."""
    assert with_plugins([Watcher]) == (OnlyToken, Watcher)
    assert with_plugins([OnlyToken]) == (OnlyToken,)


def test_a_broken_package_is_named(installed: Path) -> None:
    """Nothing is loaded in part."""
    installed.write_text(f"[{PLUGIN_GROUP}]\nbroken = no_such_module:C\n")

    with pytest.raises(ConfigError, match=r"broken \(no_such_module:C\), which an installed pack"):
        with_plugins([])


def test_arguments_that_nobody_reads_are_refused_by_name() -> None:
    """Whether or not any processor is loaded."""
    params = SamplingParams(extra_args={"only_token": 1, "watched": True})

    check_request([OnlyToken, Watcher], params)
    with pytest.raises(InvalidRequestError, match=r"reads 'watched'; known: only_token") as caught:
        check_request([OnlyToken], params)
    assert caught.value.param == "extra_args"
    with pytest.raises(InvalidRequestError, match=r"no loaded logits processor reads 'only_token'"):
        check_request([], params)


def test_a_processor_may_refuse_a_request() -> None:
    """In its own words."""
    params = SamplingParams(extra_args={"only_token": 1.5})

    with pytest.raises(
        InvalidRequestError, match=r"OnlyToken refuses the request: only_token must"
    ):
        check_request([OnlyToken], params)


@pytest.mark.parametrize("extra_args", [5, [1], {1: 2}])
def test_extra_args_are_names_and_values(extra_args: Any) -> None:
    """Nothing else."""
    with pytest.raises(InvalidRequestError, match=r"extra_args must be an object") as caught:
        SamplingParams(extra_args=extra_args)
    assert caught.value.param == "extra_args"


def test_a_request_takes_its_parameters_along_where_processors_are_loaded() -> None:
    """What is at its default stays out, and so does all of it where nobody would look."""
    params = SamplingParams(
        temperature=0.5, extra_args={"only_token": 3}, output_kind=RequestOutputKind.DELTA
    )
    for classes in ((), (OnlyToken,)):
        engine = scripted_engine(model={"logits_processors": classes})
        own = params if classes else params.replace(extra_args=None)
        [request] = engine.intake.requests("a", engine.intake.encode("One"), own)
        engine.core.stop()
        expected = {"temperature": 0.5, "extra_args": {"only_token": 3}} if classes else None
        assert request.sampling.processor_params == expected


def test_offline_a_request_with_unknown_arguments_is_refused() -> None:
    """As any wrong parameter, before anything starts."""
    with scripted_llm() as llm, pytest.raises(InvalidRequestError, match=r"reads 'only_token'"):
        llm.generate("One", SamplingParams(extra_args={"only_token": 1}), use_tqdm=False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "One"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "One"}]}),
        ("/v1/responses", {"input": "One"}),
    ],
)
async def test_http_calls_them_vllm_xargs(path: str, body: dict[str, Any]) -> None:
    """Known ones pass, unknown ones are refused under that name."""
    options = {"model": {"logits_processors": (OnlyToken,)}, "chat_template": "{{ messages }}"}
    async with scripted_server(**options) as client:
        good = await client.post(path, {**body, "vllm_xargs": {"only_token": 3}})
        bad = await client.post(path, {**body, "vllm_xargs": {"other": 3}})
        none = await client.post(path, {**body, "vllm_xargs": {}})

    assert (good.status, bad.status, none.status) == (200, 400, 200)
    assert bad.error["param"] == "vllm_xargs"
    assert bad.error["message"].startswith("vllm_xargs: no loaded logits processor reads 'other'")


async def test_a_beam_search_takes_no_arguments_for_processors() -> None:
    """It ranks by the model's own logits, so they would mean nothing."""
    body = {"prompt": "One", "use_beam_search": True, "n": 2, "vllm_xargs": {"only_token": 3}}
    async with scripted_server(model={"logits_processors": (OnlyToken,)}) as client:
        reply = await client.post("/v1/completions", body)

    assert reply.status == 400
    assert reply.error["param"] == "vllm_xargs"
