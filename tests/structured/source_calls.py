"""A matcher's source, called as native code calls it: by the addresses in its `MaskSource`."""

from __future__ import annotations

from ctypes import CFUNCTYPE, byref, c_bool, c_int32, c_size_t, c_uint32, c_void_p

from octavo.contracts.grammar import MaskSource
from octavo.structured.llguidance_c import CMatcher

_COUNT = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t)
_CONSUME = CFUNCTYPE(c_int32, c_void_p, c_uint32)
_IS_OVER = CFUNCTYPE(c_bool, c_void_p)


class SourceCalls:
    """What the sampler does with the mask of a row."""

    def __init__(self, matcher: CMatcher) -> None:
        self.matcher = matcher
        self._source = MaskSource.from_address(matcher.source)

    @property
    def only(self) -> int:
        """The only token that may come; -1: not known."""
        only: int = self._source.only
        return only

    def allows(self, token: int) -> bool:
        """Whether a token may come."""
        if self.only >= 0:
            return token == self.only
        one = c_uint32(token)
        fitting: int = _COUNT(self._source.count_fitting)(self._source.state, byref(one), 1)
        return fitting == 1

    def tell(self, token: int) -> None:
        """A token was drawn."""
        source = self._source
        source.told = token
        source.status = _CONSUME(source.consume)(source.state, token)
        source.has_ended = _IS_OVER(source.is_over)(source.state)
        one = c_uint32()
        found = 0
        if not source.has_ended:
            found = _COUNT(source.find_only)(source.state, byref(one), 1)
        source.only = one.value if found > 0 else -1
