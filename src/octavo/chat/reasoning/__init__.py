"""Reasoning in the text of a model: the tags between which it thinks before it answers."""
