"""Who owns which KV block. Plain Python, no arrays: a block is a number.

In: token ids of requests (as `BlockTable`). Out: block ids. Read `manager.py` first, it is the only
door; `block_pool.py` and `prefix_index.py` stand behind it, `invariants.py` says what always holds.
"""
