"""Tokens <-> text.

In come texts and token ids, out come token ids and whole characters. Everything here is plain
values: no requests, no sockets, no clock. Read `tokenizer.py` first; `detokenizer.py` and
`stop_strings.py` are what a stream of tokens passes through on its way to a user.
"""
