"""Implementations of the op set, one package each. They share nothing but the contracts in `ops/`.

`native` records a model into a program for the CPU; `torch` runs it op by op and defines what is
correct. A model file works on both unchanged.
"""
