"""Where plans run.

`base.py` is the contract; `inline.py` runs in this process; `scripted.py` plays a script.
"""
