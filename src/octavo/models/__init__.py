"""One way of wiring a layer, one short file over the op set. `registry.py` maps names to classes.

What differs between architectures of one wiring is in their facts. A model never mentions a device,
a dtype or a batch. Read `llama.py` first. `register` enters a model from outside of this package.
"""

from octavo.contracts.own_models import register

__all__ = ["register"]
