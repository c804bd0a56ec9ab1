"""Tool calls in the text of a model: one dialect for each way in which models write them.

A dialect is its tags and one function: `base.py` says what they mean, `registry.py` has the names.
A new one is a class of a few lines and one line in the registry.
"""
