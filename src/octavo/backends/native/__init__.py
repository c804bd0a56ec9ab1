"""The native back end: a model is recorded once into a flat program that C++ runs, a step per call.

Read in this order: `operations.py` (what a program is made of), `recorder.py` (the op set, writing
it down), `passes.py` (rewrites of the list), `placement.py` (which buffer lies where, who waits for
whom), `program.py` (handing it to C++). `weights.py` packs tensors, `sampling.py` converts sampling
records, `eager.py` runs single ops for tests. The C++ side is `csrc/`, seen through `_native.pyi`.
"""
