"""Who owns which KV block. Plain Python, no arrays: a block is a number.

In: token ids of requests (as `BlockTable`). Out: block ids, and the moves that a step makes first.
Read `manager.py` first, it is the only door. Behind it: `block_pool.py` (free or in use),
`prefix_index.py` and `matching.py` (what can be shared), `copy_on_write.py` (when sharing ends),
`moves.py` (copies and swaps of a step), `host_slots.py`, `swapping.py`, `tier_link.py` and
`loading.py` (lower tiers), `events.py` (news for routers). `invariants.py` says what always holds,
`snapshot.py` what there is to see.
"""
