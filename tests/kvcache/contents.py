"""Contents of findable blocks, by the little that a test cares about."""

from __future__ import annotations

from array import array

from octavo.kvcache.prefix_index import Content


def content(
    block_hash: bytes | None,
    parent: bytes = b"root",
    tokens: tuple[int, ...] = (1,),
    group: int = 0,
) -> Content:
    """A content; `block_hash` None: full only in part."""
    return Content(group, parent, block_hash, array("i", tokens))
