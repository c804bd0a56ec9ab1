"""After `import octavo.compat.vllm`, `import vllm` is Octavo.

    import octavo.compat.vllm
    from vllm import LLM, SamplingParams

`names.py` has what is there and what is not; the first `import vllm` prints the latter once. A
script that must stay as it is runs with `python -m octavo.compat.vllm script.py`.
"""

from __future__ import annotations

from octavo.compat.vllm.finder import install

install()
