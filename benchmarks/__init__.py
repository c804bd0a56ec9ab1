"""Measurements of Octavo. Nothing here is part of the package.

Run from the root of the source folder, with `src` on the path: `python -m benchmarks.simulator`.
Read `traces.py`, `drive.py` and `kv_meter.py` first: all serving benchmarks are made of them.
"""
