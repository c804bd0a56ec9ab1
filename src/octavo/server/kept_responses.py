"""One client's responses: those in the store and those that are being made.

Owns who may see what, and the refusals for ids that lead nowhere. Used by: the routes of responses.
"""

from __future__ import annotations

import asyncio
from typing import Any

from octavo.errors import InvalidRequestError
from octavo.server.background import RunningResponse
from octavo.server.dialects.places import wrong
from octavo.server.dialects.responses_answer import Keep, ResponseAnswer
from octavo.server.dialects.responses_ids import PREFIX, is_response_id, place_of
from octavo.server.dialects.responses_items import Item, is_reference
from octavo.server.errors import ResourceNotFoundError
from octavo.server.response_store import StoredResponse
from octavo.server.state import ServerState

MAX_REFERENCES = 256  # item references of one request; each is looked up


class KeptResponses:
    """The responses of one tenant."""

    def __init__(self, state: ServerState, tenant: str) -> None:
        self.tenant = tenant
        self._state = state
        self._store, self._background = state.responses, state.background

    def running(self, response_id: str) -> RunningResponse | None:
        """The background response with this id, while it is made."""
        return self._background.find(self.tenant, response_id)

    async def find(self, response_id: str, param: str = "response_id") -> StoredResponse:
        """A response that is not being made. Raises ResourceNotFoundError and
        InvalidRequestError."""
        stored = None
        if _checked(response_id, param):
            stored = await self._store.find(self.tenant, response_id)
        if stored is None:
            raise _absent(response_id, param)
        return stored

    async def context(self, previous_id: str | None) -> list[Item]:
        """All items that a new response goes on from. Raises as `find` does."""
        if previous_id is None:
            return []
        await self._require_ended(previous_id)
        items = None
        if _checked(previous_id, "previous_response_id"):
            items = await self._store.context(self.tenant, previous_id)
        if items is None:
            raise _absent(previous_id, "previous_response_id")
        return items

    async def inputs(self, response_id: str) -> list[Item]:
        """All items that a response was made from."""
        stored = await self.find(response_id)
        items = await self._store.context(self.tenant, response_id) or stored.items
        num_outputs = len(stored.items) - stored.num_inputs
        return items[: len(items) - num_outputs]

    async def without_references(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The items, with what they refer to in place of references."""
        if sum(map(is_reference, items)) > MAX_REFERENCES:
            raise wrong("input", f"may hold at most {MAX_REFERENCES} item references")
        return [
            await self._referred(item.get("id"), f"input[{place}].id")
            if is_reference(item)
            else item
            for place, item in enumerate(items)
        ]

    async def _referred(self, item_id: object, where: str) -> Item:
        found = place_of(item_id)
        if found is not None:
            response_id, place = found
            await self._require_ended(response_id)
            stored = await self._store.find(self.tenant, response_id)
            for item in stored.items[place : place + 1] if stored else ():
                if item["id"] == item_id:
                    return item
        message = f"{where} refers to an item that this server does not have"
        raise ResourceNotFoundError(message, param=where)

    async def _require_ended(self, response_id: str) -> None:
        running = self.running(response_id)
        if running is None:
            return
        if running.shown["status"] in ("queued", "in_progress"):
            message = "the response is still being made; wait until it has ended, or cancel it"
            raise InvalidRequestError(message, param="previous_response_id")
        await asyncio.shield(running.ending)

    def keeper(self, items: list[Item], previous_id: str | None, context: list[Item]) -> Keep:
        """What stores a response at its end."""

        async def keep(response: dict[str, Any]) -> None:
            stored = StoredResponse(response, items + response["output"], len(items))
            await self._store.put(self.tenant, stored, previous_id, context)

        return keep

    async def start(
        self,
        answer: ResponseAnswer,
        items: list[Item],
        previous_id: str | None,
        context: list[Item],
    ) -> RunningResponse:
        """Begin to make a response in the background, once nothing refuses it any more."""
        self._background.require_room()
        stored = StoredResponse(answer.shown, items, len(items), is_running=True)
        await answer.generation.enter()
        try:
            await self._store.put(self.tenant, stored, previous_id, context)
        except BaseException:
            answer.generation.close()
            raise
        counted = self._state.open_answers.one()
        return self._background.start(self.tenant, answer, items, counted)

    async def cancel(self, response_id: str) -> StoredResponse:
        """End a background response; one that has ended stays as it is."""
        await self._end(response_id)
        stored = await self.find(response_id)
        if not stored.response["background"]:
            message = "Cannot cancel a synchronous response."
            raise InvalidRequestError(message, param="response_id")
        return stored

    async def delete(self, response_id: str) -> None:
        """Forget a response."""
        await self._end(response_id)
        if self.running(response_id) is not None:
            self._background.forget(response_id)
        is_known = _checked(response_id, "response_id")
        if not (is_known and await self._store.delete(self.tenant, response_id)):
            raise _absent(response_id, "response_id")

    async def _end(self, response_id: str) -> None:
        running = self.running(response_id)
        if running is not None:
            running.cancel()
            await asyncio.shield(running.ending)


def _checked(response_id: str, param: str) -> bool:
    """Whether there may be such a response. Raises InvalidRequestError for what is no id at all."""
    if not response_id.startswith(PREFIX):
        message = f"Invalid '{param}': Expected an ID that begins with 'resp'."
        raise InvalidRequestError(message, param=param)
    return is_response_id(response_id)


def _absent(response_id: str, param: str) -> ResourceNotFoundError:
    shown = response_id if len(response_id) <= 80 else response_id[:77] + "..."
    return ResourceNotFoundError(f"Response with id '{shown}' not found.", param=param)
