"""A simulator: the real scheduler and KV manager, fed by traces, on virtual time.

    python -m benchmarks.simulator --workload chat --rate 8 --num-requests 100000 --blocks 4000
    python -m benchmarks.simulator --trace FILE --blocks 100000 --policy fair --cost-model FILE
    python -m benchmarks.simulator.fit --model smollm2:135m --out FILE

Only the executor is replaced: instead of computing, it moves a clock by what its cost model says a
step of that size takes. Pools may be far larger than this machine. The time that Python takes to
decide is not part of virtual time.
"""
