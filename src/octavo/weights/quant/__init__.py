"""Quantised checkpoints in Hugging Face's layout: their tables as matrices of our own types.

`method.py` finds out how a checkpoint is quantised. Each format has a file that knows where its
codes, scales and zero points lie; `tables.py` says the same to the extension, which makes rows of
one of our types of them (csrc/convert.hpp). Floats that are quantised while they are loaded are in
`online.py`.
"""
