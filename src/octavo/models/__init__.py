"""One architecture, one short file over the op set. `registry.py` maps names to classes.

A model never mentions a device, a dtype or a batch. Read `llama.py` first.
"""
