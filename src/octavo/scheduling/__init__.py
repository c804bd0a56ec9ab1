"""Who runs next. Plain Python: no arrays, no I/O, no clock, no random numbers.

In: requests, aborts, step results. Out: step plans, token deltas. Read `scheduler.py` first: it
reads as a list of the other files.
"""
