"""KV blocks that outlive the pool: on disk, and so also the next start.

Owns: files of blocks, their format, their order of use. In go host slots by key, out come the same
bytes or a miss. Does not know: requests, hashes' meaning, what an entry is made of.
Read first: `kv_files.py`. `block_file.py` is the format of a file, `folder.py` who lies where,
`fingerprint.py` what makes two models the same.
"""
