"""Records that cross a layer or a process: plain data, no arrays, no behaviour.

`step.py` is the table between the deciding and the computing column: read it first. `request.py`
goes into the engine core, `delta.py` comes out of it. `kv_plan.py` says how KV memory was divided
once the weights were in place, `kv_tier.py` what a slower tier below it does, `kv_events.py` what
changed in the prefix cache.
"""
