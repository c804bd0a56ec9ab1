"""POST /tokenize and /detokenize."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from octavo.errors import InvalidRequestError
from octavo.server.bodies import json_response, response_of_lists, written
from octavo.server.chat_prompt import chat_prompt
from octavo.server.described import BODY_ERRORS, HELLO, MODEL_ERRORS, described
from octavo.server.errors import ResourceNotFoundError
from octavo.server.routes.health import state_of
from octavo.server.routes.reading import read_request
from octavo.server.schemas.chat import check_chat_prompt, check_no_chat, check_num_messages
from octavo.server.schemas.tokenize import (
    AddedTokenShown,
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
    TokenizerInfo,
)
from octavo.server.state import ServerState
from octavo.text.tokenizer import LONG_TEXT, Tokenizer


@described(
    body=TokenizeRequest,
    examples={"text": {"prompt": "Once upon a time"}, "chat": {"messages": HELLO}},
    answer=TokenizeResponse,
    errors=(*BODY_ERRORS, *MODEL_ERRORS),
)
async def tokenize(request: Request) -> Response:
    """Token ids of a text, or of a chat as the template renders it."""
    state, body, _ = await read_request(request, TokenizeRequest)
    if body.prompt is not None:
        check_no_chat(body, "prompt")
        text, adds_specials = body.prompt, body.add_special_tokens is not False
    elif body.messages is not None:
        check_num_messages(body, state.config.max_messages)
        check_chat_prompt(body)
        text = await chat_prompt(state, body)
        adds_specials = bool(body.add_special_tokens)
    else:
        raise InvalidRequestError("prompt or messages is missing", param="prompt")
    arguments = (text, adds_specials, bool(body.return_token_strs))
    if len(text) < LONG_TEXT:
        await asyncio.sleep(0)  # many in a row let others in between
        return _tokenized(state, *arguments)
    return await asyncio.to_thread(_tokenized, state, *arguments)


def _tokenized(state: ServerState, text: str, adds_specials: bool, shows_strings: bool) -> Response:
    """A `TokenizeResponse`; of a long text nothing is kept but the bytes of the answer."""
    tokenizer, count = state.tokenizer, 0
    ids: list[bytes] = []
    strings: list[bytes] = []
    for some in tokenizer.encode_by_stretch(text, adds_specials):
        if not some:
            continue
        count += len(some)
        ids.append(written(some))
        if shows_strings:
            strings.append(written([*map(tokenizer.piece_of, some)]))
    return response_of_lists(
        {"count": count, "max_model_len": state.loaded.max_model_len},
        {"tokens": ids, "token_strs": strings if shows_strings else None},
    )


@described(body=DetokenizeRequest, answer=DetokenizeResponse, errors=(*BODY_ERRORS, *MODEL_ERRORS))
async def detokenize(request: Request) -> Response:
    """The text of token ids."""
    state, body, _ = await read_request(request, DetokenizeRequest)
    text = await asyncio.to_thread(_checked_text, state.tokenizer, body.tokens)
    return json_response(DetokenizeResponse(prompt=text))


@described(answer=TokenizerInfo, errors=MODEL_ERRORS)
async def tokenizer_info(request: Request) -> Response:
    """Special tokens and the chat template, with `--enable-tokenizer-info-endpoint`."""
    state = state_of(request)
    if not state.config.enable_tokenizer_info_endpoint:
        message = "start the server with --enable-tokenizer-info-endpoint to have /tokenizer_info"
        raise ResourceNotFoundError(message)
    state.require_ready()
    tokenizer = state.tokenizer
    added = tokenizer.library.get_added_tokens_decoder()
    bos = tokenizer.bos_token_id
    return json_response(
        TokenizerInfo(
            tokenizer_class="PreTrainedTokenizerFast",  # transformers' name for any such one
            model_max_length=state.loaded.max_model_len,
            add_bos_token=bos is not None and tokenizer.encode("a")[0] == bos,
            added_tokens_decoder={
                str(token_id): AddedTokenShown(
                    content=token.content, special=token_id in tokenizer.special_ids
                )
                for token_id, token in added.items()
            },
            chat_template=state.chat_template().source,
            **tokenizer.special_tokens,
        )
    )


def _checked_text(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """The text. Raises InvalidRequestError for an id that does not exist."""
    size = tokenizer.vocab_size
    wrong = next((token for token in tokens if not 0 <= token < size), None)
    if wrong is not None:
        shown = str(wrong)[:30]
        message = f"tokens: id {shown} is out of vocabulary, which has {size} tokens"
        raise InvalidRequestError(message, param="tokens")
    return tokenizer.decode(tokens, skip_special_tokens=False)
