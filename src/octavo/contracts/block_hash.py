"""The chained hash of a full KV block. Engine core and router must agree on it.

Owns: what goes into the hash and in which byte order.
Does not know: pools, requests, where a block lies.

The KV entries of a block depend on every token before it, so a block's hash covers the whole chain:

    root     = SHA-256(format name, block size, number of keys, then each key with its length)
    hash[0]  = SHA-256(root    || tokens of block 0 || extra)
    hash[i]  = SHA-256(hash[i-1] || tokens of block i || extra)

Tokens are 32-bit little-endian integers, so the hash is the same in every process and on every
machine. The keys (cache salt, adapter) colour the root and thereby the whole chain. `extra` is for
content that lies inside one block, such as the hash of an image. All fields before `extra` have a
fixed length within one chain, so no two chains share an encoding. To find a collision is to break
SHA-256: prompts come from strangers, and a collision would hand one user's context to another.
Cost: 0.6 microseconds for a block of 32 tokens.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from hashlib import sha256

BlockHash = bytes
"""32 bytes that stand for a block and all blocks before it."""

_FORMAT = b"octavo kv block 1"


def root_hash(block_size: int, keys: Iterable[bytes] = ()) -> BlockHash:
    """The parent of first blocks. Chains with different `keys` never meet.

    Keys are ordered; an empty key differs from no key.
    """
    encoded = list(keys)
    parts = [_FORMAT, _uint32(block_size), _uint32(len(encoded))]
    for key in encoded:
        parts += (_uint32(len(key)), key)
    return sha256(b"".join(parts)).digest()


def block_hash(parent: BlockHash, token_ids: array[int], extra: bytes = b"") -> BlockHash:
    """The hash of a full block that holds `token_ids` (an `array("i")`) and follows `parent`."""
    if sys.byteorder == "big":
        token_ids = token_ids[:]
        token_ids.byteswap()
    return sha256(parent + token_ids.tobytes() + extra).digest()


def salt_keys(cache_salt: str | None) -> tuple[bytes, ...]:
    """The root keys of a request's cache salt: none without a salt."""
    return () if cache_salt is None else (b"salt:" + cache_salt.encode(),)


def _uint32(number: int) -> bytes:
    return number.to_bytes(4, "little")
