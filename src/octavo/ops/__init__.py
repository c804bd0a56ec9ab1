"""The op set: names, shapes and meaning of the arithmetic. No arithmetic here.

`ops.py` is the contract that model files are written against; `backends/native` records it into a
program, `backends/torch/reference.py` runs it at once and is the definition of correct.
`weights.py` is how a model asks for its weights, `rope.py` turns RopeFacts into frequencies.
"""
