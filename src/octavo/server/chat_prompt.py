"""Messages of a request -> the prompt's text, by the model's chat template.

Rendering runs in a thread: a template is a program by a stranger, and long chats take their time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.schemas.chat import ChatPrompt
from octavo.server.state import ServerState


async def chat_prompt(
    state: ServerState,
    body: ChatPrompt,
    *,
    effort: str | None = None,
    shows_tools: bool = True,
    messages: Sequence[Mapping[str, Any]] | None = None,
) -> str:
    """The rendered chat. `effort` is how much a reasoning model shall think.

    `messages` are rendered in place of the body's.

    Raises InvalidRequestError with the template's own words, or where it knows no such effort.
    """
    continues = bool(body.continue_final_message)
    generates = body.add_generation_prompt
    return await asyncio.to_thread(
        state.chat_template().render,
        body.messages if messages is None else messages,
        tools=(body.tools or None) if shows_tools else None,
        documents=body.documents or None,
        add_generation_prompt=not continues if generates is None else generates,
        continue_final_message=continues,
        template_kwargs=(body.chat_template_kwargs or {}) | effort_kwargs(state, effort),
    )


def effort_kwargs(state: ServerState, effort: str | None) -> dict[str, Any]:
    """What tells a template of the effort; nothing where it has no word for it, as in vLLM.

    How much to think is a hint: clients send one with every request, whatever the model. Not to
    think is more: raises InvalidRequestError where a model that thinks cannot be told that.
    """
    template = state.chat_template()
    if effort is None:
        return {}
    if template.uses("reasoning_effort"):
        return {"reasoning_effort": effort}
    if effort == "none" and template.uses("enable_thinking"):
        return {"enable_thinking": False}
    if state.format.style is None or effort != "none":
        return {}
    raise InvalidRequestError(
        f"reasoning_effort {effort!r} means nothing to this model's chat template; leave it out",
        param="reasoning_effort",
    )
