"""Guide: the form that one answer must have, and what it allows next.

Owns: when a constraint is asked and told, the mask for the next token.
Does not know: how grammars work, who samples.
"""

from __future__ import annotations

from octavo.contracts.grammar import Mask, TokenConstraint


class Guide:
    """One request's constraint. It outlives preemptions: each token is told once.

    Raises ConstraintError, from the constructor and from `advance`, for a grammar that became too
    complex to follow.
    """

    __slots__ = ("_constraint", "mask")

    def __init__(self, constraint: TokenConstraint) -> None:
        self._constraint = constraint
        self.mask: Mask = constraint.mask()  # for the next token; empty: every one may come

    def advance(self, token_id: int) -> bool:
        """Take in the token that was drawn. True when the answer is complete."""
        if self._constraint.accept(token_id):
            return True
        self.mask = self._constraint.mask()
        return False
