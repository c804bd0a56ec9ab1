"""The prefix index pairs hashes with blocks, one to one."""

from __future__ import annotations

from octavo.kvcache.prefix_index import PrefixIndex


def test_a_block_is_found_by_its_hash_until_it_is_dropped():
    index = PrefixIndex()
    assert index.add(b"one", 7)
    assert index.find(b"one") == 7
    assert 7 in index
    index.drop(7)
    assert index.find(b"one") is None
    assert 7 not in index


def test_the_first_block_with_some_content_stays_the_findable_one():
    """Requests hold it already; the second one is a private copy."""
    index = PrefixIndex()
    index.add(b"one", 7)
    assert not index.add(b"one", 8)
    assert index.find(b"one") == 7
    assert 8 not in index


def test_dropping_a_block_that_is_not_findable_changes_nothing():
    index = PrefixIndex()
    index.add(b"one", 7)
    index.drop(8)
    assert list(index) == [(7, b"one")]


def test_clear_forgets_everything():
    index = PrefixIndex()
    index.add(b"one", 7)
    index.add(b"two", 8)
    index.clear()
    assert len(index) == 0
    assert index.find(b"one") is None
