"""octavo run MODEL "prompt": an answer here and now, without a server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from octavo.chat.template import ChatTemplate
from octavo.cli.engine_flags import add_engine_flags, engine_config, parse_flags
from octavo.cli.progress import PhaseProgress
from octavo.cli.terminal import questions
from octavo.config.cli_args import Parser
from octavo.engine.async_engine import AsyncLLM
from octavo.engine.build import Engine
from octavo.engine.loading import loaded
from octavo.foundation.log import set_up_logging
from octavo.prompts import PromptType
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
    parsed = parse_flags(parser, arguments)
    set_up_logging("warning")
    asked = [parsed.prompt] if parsed.prompt is not None else questions()
    overrides = {"temperature": parsed.temperature, "max_tokens": parsed.max_tokens}
    # The loop runs while an answer is made, not while a person types: Ctrl-C at the prompt would
    # only cancel a task that cannot notice it.
    with asyncio.Runner() as runner:
        llm = AsyncLLM.start(engine_config(parsed))
        try:
            conversation = runner.run(_begin(llm, parsed.system, overrides, raw=parsed.raw))
            for question in asked:
                runner.run(conversation.answer(question))
        finally:
            runner.run(llm.shutdown())
    return 0


async def _begin(
    llm: AsyncLLM, system: str | None, overrides: dict[str, Any], *, raw: bool
) -> _Conversation:
    """Wait for the model."""
    engine = await _load(llm)
    params = SamplingParams.from_optional(
        engine.default_sampling, **overrides, output_kind=RequestOutputKind.DELTA
    )
    template = None
    if not raw and engine.chat_template is not None:
        template = ChatTemplate(engine.chat_template, engine.tokenizer.special_tokens)
    return _Conversation(llm, engine, params, template, system)


class _Conversation:
    """Questions and answers so far. Without a template each question stands alone."""

    def __init__(
        self,
        llm: AsyncLLM,
        engine: Engine,
        params: SamplingParams,
        template: ChatTemplate | None,
        system: str | None,
    ) -> None:
        self._llm, self._engine, self._params, self._template = llm, engine, params, template
        self._history: list[Message] = []
        if system:
            self._history.append({"role": "system", "content": system})

    async def answer(self, question: str) -> None:
        """Print the answer as it comes."""
        if self._template is None:
            await _print(self._llm, question, self._params)
            return
        self._history.append({"role": "user", "content": question})
        text = self._template.render(self._history)
        ids = self._engine.tokenizer.encode(text, add_special_tokens=False)
        answer = await _print(self._llm, ids, self._params)
        self._history.append({"role": "assistant", "content": answer})


async def _load(llm: AsyncLLM) -> Engine:
    """The loaded engine; progress is shown to a person at a terminal."""
    if not sys.stderr.isatty():
        return await llm.ready()
    progress = PhaseProgress(in_bytes=False)
    try:
        return await loaded(llm, lambda phase, share: progress.show(phase, share, 1.0))
    finally:
        progress.close()


async def _print(llm: AsyncLLM, prompt: PromptType, params: SamplingParams) -> str:
    """Print an answer as it comes; returns it whole."""
    pieces = []
    checked = await llm.check(prompt, params)
    async with llm.submit(checked) as outputs:
        async for output in outputs:
            for choice in output.outputs:
                pieces.append(choice.text)
                sys.stdout.write(choice.text)
                sys.stdout.flush()
    print()
    return "".join(pieces)
