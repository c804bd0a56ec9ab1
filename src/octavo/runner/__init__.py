"""A step plan becomes a forward pass. `base.py` is the contract.

`memory_plan.py` divides the memory, `native_runner.py` runs a recorded program on the CPU,
`torch_runner.py` runs the same models on torch. Nothing here knows queues, budgets or fairness.
"""
