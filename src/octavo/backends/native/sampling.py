"""Sampling records on their way into the extension and back."""

from __future__ import annotations

from octavo import _native
from octavo.contracts.step import SamplingSpec

_SEED_BITS = (1 << 64) - 1
_ELSEWHERE = ("seed", "processor_params")  # needs a conversion; is for Python
_FIELDS = tuple(name for name in SamplingSpec.__struct_fields__ if name not in _ELSEWHERE)


def native_spec(spec: SamplingSpec) -> _native.SamplingSpec:
    """The same record for the C++ side."""
    native = _native.SamplingSpec()
    for name in _FIELDS:
        setattr(native, name, getattr(spec, name))
    native.seed = spec.seed & _SEED_BITS
    return native
