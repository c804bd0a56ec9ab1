"""octavo run-batch -i in.jsonl -o out.jsonl MODEL: a file of requests, computed here and now.

Lines are OpenAI's batch format, as vLLM's command of this name reads and writes it. They go through
the routes of the server, inside the process. Answers are written in the order of the input.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec
from starlette.applications import Starlette

from octavo.cli.engine_flags import add_engine_flags, engine_config, parse_flags
from octavo.config.cli_args import Parser, add_options, build
from octavo.config.server import ServerConfig
from octavo.config.vllm_options import BATCH_OPTIONS, SERVER_OPTIONS
from octavo.engine.async_engine import AsyncLLM
from octavo.errors import ConfigError, InvalidRequestError
from octavo.foundation.log import set_up_logging
from octavo.server.app import bare_app
from octavo.server.batches.inside import post_inside
from octavo.server.batches.lines import answered, read_line, unanswered
from octavo.server.batches.service import served
from octavo.server.chat_format import check_chat_options
from octavo.server.state import ServerState

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/v1/score",
    "/score",
    "/v1/rerank",
    "/v2/rerank",
    "/rerank",
)
_End = Literal["done", "failed", "invalid"]  # of a line
_AHEAD = 4  # lines read beyond the first that is not done, for each that may run
_SERVER_FLAGS = frozenset(
    {
        "chat_template",
        "chat_template_content_format",
        "default_chat_template_kwargs",
        "enable_auto_tool_choice",
        "enable_prompt_tokens_details",
        "max_body_bytes",
        "max_messages",
        "reasoning_config",
        "reasoning_parser",
        "served_model_name",
        "tool_call_parser",
    }
)


@dataclass(frozen=True, slots=True)
class _Tally:
    num_done: int = 0
    num_failed: int = 0
    num_invalid: int = 0  # of them, lines that are no requests


def run(arguments: Sequence[str], *, is_vllm: bool = False) -> int:
    """Compute every line; 1 if any of them was refused, or with `is_vllm` if any is no request."""
    parser = Parser(prog="octavo run-batch", description="Compute a file of requests.")
    add_engine_flags(parser)
    parser.add_argument("-i", "--input-file", required=True, metavar="PATH", help="JSONL; - stdin.")
    parser.add_argument("-o", "--output-file", required=True, metavar="PATH", help="- for stdout.")
    others = set(ServerConfig.__dataclass_fields__) - _SERVER_FLAGS
    add_options(parser, ServerConfig, skip=others)
    parsed = parse_flags(parser, arguments, (*BATCH_OPTIONS, *SERVER_OPTIONS))
    set_up_logging("warning")
    for flag, path in (("-i", parsed.input_file), ("-o", parsed.output_file)):
        if "://" in path:
            raise ConfigError(f"{flag} takes a local file; addresses are not fetched: {path}")
    config = build(ServerConfig, parsed, **_defaults(others))
    check_chat_options(config)
    with ExitStack() as files:
        source = _opened(files, parsed.input_file, "rb")
        target = _opened(files, parsed.output_file, "wb")
        llm_config = engine_config(parsed)
        tally = asyncio.run(
            _with_engine(AsyncLLM.start(llm_config), llm_config.model.model, config, source, target)
        )
    told = f"{tally.num_done} lines, {tally.num_failed} of them failed"
    print(f"octavo run-batch: {told}", file=sys.stderr)
    return 1 if (tally.num_invalid if is_vllm else tally.num_failed) else 0


async def run_lines(
    state: ServerState, app: Starlette, source: BinaryIO, target: BinaryIO
) -> _Tally:
    """Compute the lines of `source` into `target`. The model must be loaded."""
    endpoints = served(app, ENDPOINTS)
    width = state.loaded.config.scheduler.max_num_seqs
    slots = asyncio.Semaphore(width)
    waiting: deque[asyncio.Task[tuple[bytes, _End]]] = deque()
    ends: Counter[_End] = Counter()

    async def one(number: int, data: bytes) -> tuple[bytes, _End]:
        async with slots:
            return await _answer(app, endpoints, number, data)

    try:
        lines = _lines(source)
        while True:
            data = await asyncio.to_thread(next, lines, None)
            if data is not None:
                number = ends.total() + len(waiting) + 1
                waiting.append(asyncio.ensure_future(one(number, data)))
            while waiting and (data is None or waiting[0].done() or len(waiting) >= _AHEAD * width):
                result, end = await waiting.popleft()
                ends[end] += 1
                target.write(result)
            if data is None:
                num_failed = ends["failed"] + ends["invalid"]
                return _Tally(ends.total(), num_failed, ends["invalid"])
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _with_engine(
    llm: AsyncLLM, name: str, config: ServerConfig, source: BinaryIO, target: BinaryIO
) -> _Tally:
    try:
        state = ServerState(llm, name, config)
        state.set_loaded(await llm.ready())
        return await run_lines(state, bare_app(state), source, target)
    finally:
        await llm.shutdown()


async def _answer(
    app: Starlette, endpoints: tuple[str, ...], number: int, data: bytes
) -> tuple[bytes, _End]:
    """(line of the output, how it ended)."""
    try:
        line = read_line(data)
        if line.url not in endpoints:
            raise InvalidRequestError(f"url must be one of {', '.join(endpoints)}", param="url")
    except InvalidRequestError as error:
        custom_id = _custom_id(data) or f"line-{number}"
        told = unanswered(custom_id, "invalid_line", f"line {number}: {error.message}")
        return told, "invalid" if error.param is None else "failed"
    reply = await post_inside(app, line.url, msgspec.json.encode(line.body), "")
    result = answered(line.custom_id, reply.status, reply.body, repeats_error=True)
    return result, "done" if reply.status < 400 else "failed"


def _custom_id(data: bytes) -> str | None:
    """The id of a line that is wrong elsewhere."""
    try:
        custom_id = msgspec.json.decode(data)["custom_id"]
    except (msgspec.DecodeError, ValueError, LookupError, TypeError, RecursionError):
        return None
    return custom_id[:512] if isinstance(custom_id, str) else None


def _lines(source: BinaryIO) -> Iterator[bytes]:
    return (line for line in source if line.strip())


def _opened(files: ExitStack, path: str, mode: str) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer if mode == "rb" else sys.stdout.buffer
    try:
        opened = Path(path).open(mode)  # noqa: SIM115 - closed by `files`
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    return files.enter_context(opened)  # type: ignore[return-value]  # the mode is a binary one


def _defaults(names: set[str]) -> dict[str, object]:
    """What has no meaning without a socket keeps its default, whatever the environment says."""
    return {name: ServerConfig.__dataclass_fields__[name].default for name in names}
