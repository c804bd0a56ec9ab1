"""The running system: the only package that holds the deciding and the computing column.

A prompt comes in through `intake.py` and leaves as EngineRequests; `core.py` plans, runs and
commits steps; `output.py` turns token deltas into text and outputs. `sync_engine.py` drives all of
it in the caller's thread, `async_engine.py` in a thread of its own. `build.py` puts the parts
together. Read `core.py` first.
"""
