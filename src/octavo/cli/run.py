"""octavo run MODEL "prompt": an answer here and now, without a server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from typing import Any

from octavo.cli.engine_flags import add_engine_flags, engine_config
from octavo.cli.progress import ProgressLine
from octavo.cli.terminal import questions
from octavo.config.cli_args import Parser
from octavo.config.engine import EngineConfig
from octavo.engine.async_engine import AsyncLLM
from octavo.foundation.log import set_up_logging
from octavo.sampling_params import RequestOutputKind, SamplingParams

Message = dict[str, Any]


def run(arguments: Sequence[str]) -> int:
    """Answer one prompt, or every line of a terminal."""
    parser = Parser(prog="octavo run", description="Answer one prompt here and now.")
    add_engine_flags(parser, model_is_optional=False)
    parser.add_argument("prompt", nargs="?", help="The question; default: read from the terminal.")
    parser.add_argument("--system", help="System message.")
    parser.add_argument("--raw", action="store_true", help="Continue the text; no chat template.")
    parser.add_argument("--max-tokens", type=int, help="Longest answer; default: what fits.")
    parser.add_argument("--temperature", type=float, help="0 for the most likely answer.")
    parsed = parser.parse_args(arguments)
    set_up_logging("warning")
    asked = [parsed.prompt] if parsed.prompt is not None else questions()
    overrides = {"temperature": parsed.temperature, "max_tokens": parsed.max_tokens}
    return asyncio.run(
        _answer_all(engine_config(parsed), asked, parsed.system, overrides, raw=parsed.raw)
    )


async def _answer_all(
    config: EngineConfig,
    asked: Iterable[str],
    system: str | None,
    overrides: dict[str, Any],
    *,
    raw: bool,
) -> int:
    progress = ProgressLine(in_bytes=False)
    engine = AsyncLLM.start(config, on_progress=lambda phase, done: progress.show(phase, done, 1.0))
    try:
        await engine.ready()
        progress.close()
        params = SamplingParams.from_optional(
            engine.default_sampling, **overrides, output_kind=RequestOutputKind.DELTA
        )
        history: list[Message] = [{"role": "system", "content": system}] if system else []
        for question in asked:
            if raw or not engine.has_chat_template:
                await _print(engine, question, params)
                continue
            history.append({"role": "user", "content": question})
            answer = await _print(engine, engine.render_chat(history), params)
            history.append({"role": "assistant", "content": answer})
    finally:
        await engine.shutdown(0)
    return 0


async def _print(engine: AsyncLLM, prompt: Any, params: SamplingParams) -> str:
    """Print an answer as it comes; returns it whole."""
    pieces = []
    async with aclosing(engine.generate(prompt, params)) as outputs:
        async for output in outputs:
            piece = output.outputs[0].text if output.outputs else ""
            pieces.append(piece)
            sys.stdout.write(piece)
            sys.stdout.flush()
    print()
    return "".join(pieces)
