"""The block hash stands for a block and everything before it, the same in every process."""

from __future__ import annotations

from array import array
from hashlib import sha256

from octavo.contracts.block_hash import block_hash, root_hash, salt_keys


def tokens(*token_ids: int) -> array[int]:
    return array("i", token_ids)


def test_the_hash_is_that_of_the_parent_and_the_tokens_in_little_endian():
    """Written out by hand, so that no change goes unnoticed: routers compute it too."""
    parent = root_hash(2)
    by_hand = sha256(parent + b"\x01\x00\x00\x00" + b"\x00\x01\x00\x00").digest()
    assert by_hand == block_hash(parent, tokens(1, 256))


def test_the_root_has_a_pinned_value():
    """Equal across versions, machines and processes."""
    by_hand = sha256(b"octavo kv block 1" + b"\x20\x00\x00\x00" + b"\x00\x00\x00\x00").digest()
    assert by_hand == root_hash(32)


def test_equal_tokens_behind_different_parents_have_different_hashes():
    """KV entries depend on everything before them."""
    first, second = block_hash(root_hash(2), tokens(1, 2)), block_hash(root_hash(2), tokens(3, 4))
    assert block_hash(first, tokens(5, 6)) != block_hash(second, tokens(5, 6))


def test_a_salt_colours_the_whole_chain():
    """Only the root sees the salt, but every later hash contains the root."""
    plain, salted = root_hash(2), root_hash(2, salt_keys("tenant"))
    for block in (tokens(1, 2), tokens(3, 4)):
        plain, salted = block_hash(plain, block), block_hash(salted, block)
        assert plain != salted


def test_no_salt_and_an_empty_salt_are_different():
    assert root_hash(2, salt_keys(None)) != root_hash(2, salt_keys(""))


def test_keys_cannot_be_cut_differently():
    """The length goes into the hash: ("ab", "c") is not ("a", "bc")."""
    assert root_hash(2, [b"ab", b"c"]) != root_hash(2, [b"a", b"bc"])


def test_engines_with_different_block_sizes_never_agree():
    assert root_hash(16) != root_hash(32)


def test_content_inside_a_block_tells_equal_tokens_apart():
    """Placeholder tokens of two images are equal; their hashes come as `extra`."""
    root = root_hash(2)
    assert block_hash(root, tokens(9, 9), b"cat") != block_hash(root, tokens(9, 9), b"dog")
