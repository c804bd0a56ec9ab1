"""The prefix index pairs contents with blocks, and knows what follows what."""

from __future__ import annotations

from octavo.kvcache.prefix_index import MAX_CHILDREN, PrefixIndex
from tests.kvcache.contents import content


def test_a_block_is_found_by_its_hash_until_it_is_dropped():
    index = PrefixIndex()
    assert index.add(content(b"one"), 7)
    assert index.find(0, b"one") == 7
    assert 7 in index
    assert index.drop(7) == content(b"one")
    assert index.find(0, b"one") is None
    assert 7 not in index
    assert index.num_children == 0


def test_groups_do_not_find_each_others_blocks():
    index = PrefixIndex(num_groups=2)
    index.add(content(b"one", group=1), 7)
    assert index.find(0, b"one") is None
    assert index.find(1, b"one") == 7
    assert not list(index.children(0, b"root"))


def test_the_first_block_with_some_content_stays_the_findable_one():
    """Requests hold it already; the second one is a private copy."""
    index = PrefixIndex()
    index.add(content(b"one"), 7)
    assert not index.add(content(b"one"), 8)
    assert index.find(0, b"one") == 7
    assert 8 not in index


def test_children_come_newest_first_and_never_too_many():
    index = PrefixIndex()
    for block_id in range(MAX_CHILDREN + 2):
        index.add(content(bytes([block_id]), tokens=(block_id,)), block_id)
    found = [block_id for block_id, _ in index.children(0, b"root")]
    assert found == list(range(MAX_CHILDREN + 1, 1, -1))


def test_a_block_that_is_full_in_part_is_a_child_without_a_hash():
    index = PrefixIndex()
    index.add(content(None, tokens=(1, 2)), 7)
    assert [(7, [1, 2])] == [(one, list(tokens)) for one, tokens in index.children(0, b"root")]
    assert index.num_hashes == 0


def test_a_block_that_was_full_in_part_becomes_a_full_one():
    index = PrefixIndex()
    index.add(content(None, tokens=(1, 2)), 7)
    assert index.add(content(b"one", tokens=(1, 2, 3)), 7)
    assert index.find(0, b"one") == 7
    assert len(list(index.children(0, b"root"))) == len(index) == 1


def test_dropping_a_block_that_is_not_findable_changes_nothing():
    index = PrefixIndex()
    index.add(content(b"one"), 7)
    assert index.drop(8) is None
    assert list(index) == [(7, content(b"one"))]


def test_clear_forgets_everything():
    index = PrefixIndex()
    index.add(content(b"one"), 7)
    index.add(content(None, tokens=(2,)), 8)
    index.clear()
    assert (len(index), index.num_hashes, index.num_children) == (0, 0, 0)
