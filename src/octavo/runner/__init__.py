"""A step plan becomes a forward pass. `base.py` is the contract.

`memory_plan.py` divides the memory, `native_runner.py` runs a recorded program on the CPU; the same
models run on torch through `backends/torch/runner.py`. Nothing here knows queues, budgets or
fairness.
"""
