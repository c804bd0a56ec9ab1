"""MeteredContext: one rendering, as the code of a template and its filters see it.

Owns the entry points through which values are made, shown and compared.
Does not know: how code comes to call them (`sandbox.py`).
Used by: sandbox, sandbox_calls, sandbox_filters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import Context

from octavo.chat.render_budget import LIST_ITEM, RenderBudget

SHORT_TEXT = 64  # characters; comparing with so few is nothing to count


class MeteredContext(Context):
    """Generated code calls these methods around what it does."""

    budget: RenderBudget

    def start(self, budget: RenderBudget) -> None:
        """Set the budget; nothing may be rendered before."""
        self.budget = budget
        self.tick = budget.tick  # in the instance: it is called for every statement

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        """A context for an inner scope, on the same budget."""
        context = super().derived(locals)
        assert isinstance(context, MeteredContext)
        context.start(self.budget)
        return context

    def text(self, value: object) -> str:
        """A value as text, charged."""
        if not isinstance(value, str):
            self.budget.weigh(value)
            value = str(value)
        self.budget.tick(len(value))
        return value

    def concat(self, values: Iterable[object]) -> str:
        """The `~` operator."""
        return self.text("".join(map(self.text, values)))

    def flat(self, value: tuple[object, ...]) -> tuple[object, ...]:
        """A tuple written in the template. It holds no containers, so hashing it is bounded."""
        if any(isinstance(item, list | tuple | dict) for item in value):
            raise SecurityError("tuples of lists are not available in chat templates")
        return value

    def made(self, value: object) -> object:
        """The result of an operation that makes no more than its input holds, charged.

        Only the places of a container count: what lies in them was charged when it was made. Items
        may be shared, so that a few containers in each other are small to hold and endless to walk;
        who walks them weighs them before.
        """
        if isinstance(value, str):
            self.budget.tick(len(value))
        elif isinstance(value, list | tuple | dict):
            self.budget.tick(len(value) * LIST_ITEM)
        else:
            self.budget.tick()
        return value

    def comparable(self, value: object) -> object:
        """A side of a comparison, which may walk through all of it."""
        if isinstance(value, list | tuple | dict):
            self.budget.weigh(value)
            self.budget.tick()
        elif isinstance(value, str) and len(value) > SHORT_TEXT:
            self.budget.tick()
        return value
