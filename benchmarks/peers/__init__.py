"""Octavo beside other engines: one command sets them up, measures all in turns and writes results.

    python -m benchmarks.peers

Read `engines.py` first: the table of who takes part. Each peer lives in a virtual environment of
its own (`environments.py`) and runs as a worker process (`workers/`) that `process.py` talks to.
"""
