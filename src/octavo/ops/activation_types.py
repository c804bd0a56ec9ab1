"""What `--activation-dtype` asks of a model's weights, said where they cannot give it."""

from __future__ import annotations

from typing import NoReturn

from octavo.errors import ConfigError

_NEEDED = {
    "int8": ("quantised weights", ""),
    "bfloat16": ("BF16 weights", ", or add --dtype bfloat16 where they are other floats"),
}


def refuse_activation_dtype(activation_dtype: str) -> NoReturn:
    """Raises ConfigError: no matrix of the model multiplies activations of that type."""
    needed, or_else = _NEEDED[activation_dtype]
    raise ConfigError(
        f"--activation-dtype {activation_dtype} needs {needed}, and this model has none; "
        f"use --activation-dtype auto{or_else}"
    )
