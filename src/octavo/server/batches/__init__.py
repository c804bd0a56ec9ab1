"""Files and batches: JSONL requests that are kept, computed beside live traffic, and kept again.

`database.py` owns the tables of the SQLite file; `file_store.py` and `batch_store.py` what is in
it; `lines.py` the form of a line; `inside.py` calls a route without a socket; `runner.py` decides
which line is next.
"""
