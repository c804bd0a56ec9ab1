"""What all routes share: the engine, the names it is served under, and whether it may be asked.

One object per server, made in `app.py`, reached by routes as an argument.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from octavo.chat.messages import ContentFormat
from octavo.chat.template import ChatTemplate
from octavo.config.server import ServerConfig
from octavo.engine.async_engine import AsyncLLM
from octavo.engine.build import Engine
from octavo.errors import EngineDeadError, InvalidRequestError, ModelNotFoundError, OverloadedError
from octavo.prompts import TokensPrompt
from octavo.server.background import BackgroundResponses
from octavo.server.chat_format import ChatFormat
from octavo.server.errors import NotReadyError, shutting_down
from octavo.server.keys import KeyRing
from octavo.server.metrics import ServerMetrics
from octavo.server.quotas import Quotas
from octavo.server.response_store import ResponseStore
from octavo.text.tokenizer import LONG_TEXT, Tokenizer

if TYPE_CHECKING:
    from octavo.server.batches.service import BatchService

_CONTENT_FORMATS: Mapping[str, ContentFormat | None] = {
    "auto": None,
    "string": "string",
    "openai": "openai",
}
LONGEST_NAME = 256  # characters of a request's id; every chunk repeats it


class OpenAnswers:
    """Counts answers that are being made, so that draining can wait for the last of them."""

    def __init__(self) -> None:
        self.count = 0
        self._all_closed = asyncio.Event()
        self._all_closed.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one answer while the block runs."""
        self.count += 1
        self._all_closed.clear()
        try:
            yield
        finally:
            self.count -= 1
            if self.count == 0:
                self._all_closed.set()

    async def wait_closed(self) -> None:
        """Return when no answer is open."""
        await self._all_closed.wait()


class ServerState:
    """The engine as the routes see it."""

    def __init__(
        self,
        engine: AsyncLLM,
        model_name: str,
        config: ServerConfig,
        keys: KeyRing | None = None,
        responses: ResponseStore | None = None,
    ) -> None:
        self.engine = engine
        self.model_name = model_name
        self.config = config
        self.keys = keys or KeyRing(config)
        self.quotas = Quotas()
        self.batches: BatchService | None = None  # with --batch-store, once it is open
        self.metrics = ServerMetrics(self.names[0], config.metrics_namespace)
        self.created = int(time.time())
        self.format = ChatFormat()  # until the model's template is known
        self.is_draining = False
        self.open_answers = OpenAnswers()
        self.responses = responses or ResponseStore.of(config)
        self.background = BackgroundResponses(self.responses)
        self._loaded: Engine | None = None
        self._template: ChatTemplate | None = None
        self.num_choices = 0  # admitted and not ended: running or waiting
        self._ended = asyncio.Event()  # some of them, since it was cleared

    @property
    def loaded(self) -> Engine:
        """The engine's parts. Only after `require_ready`."""
        assert self._loaded is not None, "require_ready comes first"
        return self._loaded

    @property
    def is_ready(self) -> bool:
        """Whether the model is loaded."""
        return self._loaded is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Names under which the model is served, the first one in answers."""
        return self.config.served_model_name or (self.model_name,)

    @property
    def tokenizer(self) -> Tokenizer:
        return self.loaded.tokenizer

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Sampling defaults of the model's generation_config."""
        return self.loaded.default_sampling

    def set_loaded(self, loaded: Engine) -> None:
        """The model is there; from now on requests are taken.

        Raises CorruptFileError for a template of the configuration that is none, ConfigError for
        variables that it must not have. The model's own is compiled when the first chat asks for
        it.
        """
        config = self.config
        source = config.chat_template or loaded.chat_template
        self._template = ChatTemplate(
            source,
            loaded.tokenizer.special_tokens,
            content_format=_CONTENT_FORMATS[config.chat_template_content_format],
            defaults=config.template_kwargs,
        )
        self.format = ChatFormat.of(config, source)
        if self.config.chat_template:
            self._template.prepare()
        self._loaded = loaded

    async def close_responses(self) -> None:
        """End what is made in the background, and close the store."""
        await self.background.close()
        await self.responses.close()

    def require_ready(self) -> None:
        """Refuse while loading, draining or dead. Raises NotReadyError, EngineDeadError."""
        if self.engine.errored:
            raise EngineDeadError("the engine has ended; restart the server")
        if self.is_draining:
            raise shutting_down()
        if self._loaded is None:
            progress = self.engine.load_progress
            message = f"the model is still loading: {progress.phase}, {progress.share:.0%}"
            raise NotReadyError(message, retry_after_s=1)

    @contextmanager
    def admitted(self, num_choices: int) -> Iterator[None]:
        """Count so many choices as being in the engine while the block runs.

        Raises NotReadyError when the engine takes no more, or ends before it has taken them.
        """
        if self.engine.is_draining:
            raise shutting_down()
        self.num_choices += num_choices
        try:
            yield
        except (OverloadedError, EngineDeadError):
            if self.engine.is_draining and not self.engine.errored:
                raise shutting_down() from None
            raise
        finally:
            self.num_choices -= num_choices
            self._ended.set()

    async def wait_for_row(self) -> None:
        """Return once a request can run without making another one wait."""
        while self.num_choices >= self.loaded.config.scheduler.max_num_seqs:
            self._ended.clear()
            await self._ended.wait()

    async def wait_for_end(self, longest_s: float) -> None:
        """Return when the next request ends, or after so many seconds."""
        self._ended.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), longest_s)

    def allowed_priority(self, tenant: str, asked: int) -> int:
        """The priority of a tenant's request: what was asked for, or the best that its key has."""
        record = self.keys.record(tenant)
        if record is None or self.loaded.config.scheduler.scheduling_policy != "priority":
            return asked
        return max(asked, record.priority)

    def require_model(self, name: str | None) -> str:
        """The name to answer with. Raises ModelNotFoundError."""
        names = self.names
        if name is None:
            return names[0]
        if name not in names:
            shown = name if len(name) <= 100 else name[:97] + "..."
            message = f"The model `{shown}` does not exist; served here: {', '.join(names)}"
            raise ModelNotFoundError(message, param="model")
        return name

    def chat_template(self) -> ChatTemplate:
        """The template of chats; rendering raises where the model has none."""
        assert self._template is not None, "require_ready comes first"
        return self._template

    async def tokenise(
        self,
        text: str,
        *,
        add_special_tokens: bool,
        enough: int | None = None,
        at_end: bool = False,
    ) -> list[int]:
        """Token ids; neither a long text nor many in a row hold up the event loop.

        Of a very long text no more than is needed to see that there are more than `enough` ids:
        the first ones, or the last ones if `at_end`.
        """
        if len(text) < LONG_TEXT:
            await asyncio.sleep(0)
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        if at_end and enough is not None:
            return await asyncio.to_thread(
                self.tokenizer.encode_last,
                text,
                enough + 1,
                add_special_tokens=add_special_tokens,
            )
        return await asyncio.to_thread(
            self.tokenizer.encode, text, add_special_tokens=add_special_tokens, enough=enough
        )


def prompt_of(token_ids: list[int], text: str | None, salt: str | None) -> TokensPrompt:
    """A prompt for the engine."""
    prompt: TokensPrompt = {"prompt_token_ids": token_ids}
    if text is not None:
        prompt["prompt"] = text
    if salt is not None:
        prompt["cache_salt"] = salt
    return prompt


def new_id(prefix: str, name: str | None) -> str:
    """An id such as `cmpl-6f1e...`, from the name that the client gave the request, or a fresh one.

    Raises InvalidRequestError for a name that is too long.
    """
    if name is not None and len(name) > LONGEST_NAME:
        message = f"request_id may have at most {LONGEST_NAME} characters, got {len(name)}"
        raise InvalidRequestError(message, param="request_id")
    return f"{prefix}-{name or os.urandom(12).hex()}"
