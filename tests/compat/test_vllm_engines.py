"""Scripts of vLLM's, as they are written for it, on a real model."""

from __future__ import annotations

from pathlib import Path

from tests.support.data import smollm2_path
from tests.support.fresh_python import run_python

SCRIPT = """
import asyncio, dataclasses, sys
from vllm import AsyncEngineArgs, AsyncLLMEngine, EngineArgs, LLM, LLMEngine, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.inputs import TokensPrompt

MODEL = sys.argv[1]
SMALL = {"max_model_len": 256, "num_gpu_blocks_override": 32, "max_num_seqs": 4}
PROMPT, PARAMS = "The capital of France is", SamplingParams(temperature=0, max_tokens=2)


def from_args():
    llm = LLM.from_engine_args(EngineArgs(model=MODEL, trust_remote_code=True, **SMALL))
    [output] = llm.generate([PROMPT], PARAMS, use_tqdm=False)
    print("LLM", output.outputs[0].text, output.metrics is not None)
    llm.shutdown()


def by_keywords():
    llm = LLM(**dataclasses.asdict(EngineArgs(model=MODEL, **SMALL)))
    ids = llm.get_tokenizer().encode(PROMPT)
    [output] = llm.generate(TokensPrompt(prompt_token_ids=ids), PARAMS, use_tqdm=False)
    print("LLM", output.outputs[0].text)
    try:
        llm.sleep(level=1)
    except AttributeError as error:
        print(error)
    llm.shutdown()


def stepping():
    engine = LLMEngine.from_engine_args(EngineArgs(model=MODEL, **SMALL))
    engine.add_request("a", PROMPT, PARAMS, lora_request=None)
    try:
        engine.add_request("b", PROMPT, PARAMS, lora_request="sql")
    except ValueError as error:
        print(error)
    while engine.has_unfinished_requests():
        outputs = engine.step()
    print("LLMEngine", outputs[0].outputs[0].text)
    engine.stop()


async def serving():
    engine = AsyncLLMEngine.from_engine_args(AsyncEngineArgs(model=MODEL, **SMALL))
    async for output in engine.generate(PROMPT, PARAMS, request_id="one", lora_request=None):
        last = output
    print("AsyncLLM", last.outputs[0].text, last.request_id, engine.is_running)
    try:
        async for output in engine.generate(PROMPT, PARAMS, "two", data_parallel_rank=1):
            pass
    except ValueError as error:
        print(error)
    running = engine.generate(PROMPT, SamplingParams(max_tokens=200, ignore_eos=True), "three")
    await anext(running)
    engine.shutdown()
    async for output in running:
        last = output
    print(last.outputs[0].finish_reason, engine.is_running)
    engine.shutdown()


from_args()
by_keywords()
stepping()
asyncio.run(serving())
cleanup_dist_env_and_memory()
"""


def test_scripts_of_vllms_run_unchanged(tmp_path: Path) -> None:
    """Offline, by hand and on an event loop; what is not served is said by name."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    out, _ = run_python("-m", "octavo.compat.vllm", str(script), str(smollm2_path()))

    assert out.splitlines() == [
        "LLM  Paris. True",
        "LLM  Paris.",
        "'LLM' object has no attribute 'sleep'; the model stays loaded; end the process to free it",
        "lora_request: adapters are not supported",
        "LLMEngine  Paris.",
        "AsyncLLM  Paris. one True",
        "data_parallel_rank: it is not served",
        "abort False",
    ]
