"""The names that users write for models of the Hugging Face hub."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PART = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
_HUB_ID = re.compile(rf"({_PART}/{_PART})(?::([A-Za-z0-9_.-]+)|/((?:{_PART}/)*{_PART}\.gguf))?")


@dataclass(frozen=True, slots=True)
class HubModel:
    """`org/name`, or one GGUF file of it: `org/name:Q4_K_M`, `org/name/file.gguf`."""

    repository: str
    quantisation: str | None = None
    file: str | None = None

    @property
    def wants_gguf(self) -> bool:
        return self.quantisation is not None or self.file is not None

    def __str__(self) -> str:
        if self.quantisation is not None:
            return f"{self.repository}:{self.quantisation}"
        return self.repository if self.file is None else f"{self.repository}/{self.file}"


def parse_hub_model(text: str) -> HubModel | None:
    """What `text` means on the hub, None when it cannot be a hub name."""
    match = _HUB_ID.fullmatch(text)
    return None if match is None else HubModel(match[1], match[2], match[3])
