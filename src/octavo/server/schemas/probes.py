"""The answers of the probes."""

from __future__ import annotations

from typing import Literal

import msgspec


class ReadyAnswer(msgspec.Struct, kw_only=True):
    """Whether new requests are taken; while loading, how far it is, from 0 to 1."""

    status: Literal["ready", "loading", "draining", "dead"]
    phase: str | msgspec.UnsetType = msgspec.UNSET
    progress: float | msgspec.UnsetType = msgspec.UNSET
    open_answers: int | msgspec.UnsetType = msgspec.UNSET


class LoadAnswer(msgspec.Struct, kw_only=True):
    """Answers that are being made."""

    server_load: int


class VersionAnswer(msgspec.Struct, kw_only=True):
    """The version of Octavo."""

    version: str
