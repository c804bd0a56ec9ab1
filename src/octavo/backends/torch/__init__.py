"""The op set in plain PyTorch: the definition of correct, clear before fast.

`reference.py` is the arithmetic, `kv_cache.py` its paged memory, `weights.py` and `dequantise.py`
bring a checkpoint into float32, `runner.py` runs plans. torch is imported nowhere else in Octavo.
"""
