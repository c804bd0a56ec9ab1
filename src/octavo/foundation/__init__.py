"""Things without domain meaning: logging, registries, the clock, the machine.

Imports nothing of ours but `errors`.
"""
