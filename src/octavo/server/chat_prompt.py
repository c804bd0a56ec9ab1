"""Messages of a request -> the prompt's text, by the model's chat template.

Rendering runs in a thread: a template is a program by a stranger, and long chats take their time.
"""

from __future__ import annotations

import asyncio

from octavo.server.schemas.chat import ChatPrompt
from octavo.server.state import ServerState


async def chat_prompt(state: ServerState, body: ChatPrompt) -> str:
    """The rendered chat. Raises InvalidRequestError with the template's own words."""
    continues = bool(body.continue_final_message)
    generates = body.add_generation_prompt
    return await asyncio.to_thread(
        state.chat_template().render,
        body.messages,
        tools=body.tools or None,
        documents=body.documents or None,
        add_generation_prompt=not continues if generates is None else generates,
        continue_final_message=continues,
        template_kwargs=body.chat_template_kwargs or {},
    )
