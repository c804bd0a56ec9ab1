"""One engine under the allocation and batching policies that paging replaced, and under paging.

    contiguous.py   schedulers with one run of slots for each request: static batches, Orca
    slot_ranges.py  where those runs lie: first fit, buddy
    policies.py     names of the policies -> cores
    sweep.py        one point: a policy, a rate, a seed
    __main__.py     the command: all points of one comparison into one results file
    summary.py      medians, sustainable rates, factors
    suite.py        all comparisons of the page by name
    page.py         results files -> docs/benchmarks/serving_policies.md and its plots

The policies other than Octavo's own exist here only. They emit the same step plans for the same
executor, so kernels, batching of rows and chunking of prompts are equal for all.
"""
