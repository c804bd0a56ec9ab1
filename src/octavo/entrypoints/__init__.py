"""Modules under the names that vLLM's have, for scripts that start them with `python -m`."""
