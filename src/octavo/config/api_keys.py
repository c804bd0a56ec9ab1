"""The file of --api-keys-file: who may ask for what, and how much. Keys are kept as hashes.

Owns the file's form (YAML, or JSON by its suffix), its checks, reading and writing. Does not know
requests or time. Messages name the place of a fault and never repeat a text of the file.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from octavo.config.wrong_field import wrong_field
from octavo.errors import ConfigError
from octavo.foundation.files import replace_file

KeyScope = Literal["inference", "batches", "metrics", "admin"]
SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
FLAG = "--api-keys-file"
MAX_FILE_BYTES = 4 * 2**20
KEY_PREFIX = "sk-octavo-"  # for scanners of leaked secrets, and clients that look for `sk-`
_KEY_BYTES = 32
_TENANT_PREFIX = "key-"
_HEAD = b"# Maintained by `octavo keys`; a running server reads changes by itself.\n"
_Limit = Annotated[int, msgspec.Meta(ge=1, le=2**53)]


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One key: its hash, what it opens, and its limits; None is no limit."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.@-]{1,64}$")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    scopes: tuple[KeyScope, ...] = ("inference", "batches")
    requests_per_minute: _Limit | None = None
    concurrent_requests: _Limit | None = None
    tokens_per_day: _Limit | None = None  # of prompts and answers, by days of UTC
    # The best priority that its requests may have, lower first; for --scheduling-policy priority.
    priority: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] = 0

    @property
    def tenant(self) -> str:
        """Whose requests, files and cached blocks they are; survives an exchange of the key."""
        return _TENANT_PREFIX + self.name

    @property
    def has_limits(self) -> bool:
        """Whether anything is counted."""
        limits = (self.requests_per_minute, self.concurrent_requests, self.tokens_per_day)
        return any(limit is not None for limit in limits)


class _KeyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[KeyRecord]


def belongs_to_a_record(tenant: str) -> bool:
    """Whether a tenant is named after a key of the file."""
    return tenant.startswith(_TENANT_PREFIX)


def hash_of(key: str) -> str:
    """What the file keeps of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def new_key() -> str:
    """A key that nobody can guess, so that its plain hash cannot be turned back."""
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def read_keys(path: Path) -> tuple[KeyRecord, ...]:
    """The records of a file. Raises ConfigError for a file that cannot be read, or is wrong."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{FLAG} {path}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{FLAG} {path}: larger than {MAX_FILE_BYTES} bytes")
    is_json = path.suffix == ".json"
    try:
        given = msgspec.json.decode(data) if is_json else msgspec.yaml.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        kind = "JSON" if is_json else "YAML"
        raise ConfigError(f"{FLAG} {path}: not valid {kind}") from None
    try:
        records = msgspec.convert(given, _KeyFile).keys
    except msgspec.ValidationError as error:
        fault = wrong_field(error, _KeyFile, given, is_secret=True)
        raise ConfigError(f"{FLAG} {path}: {fault}") from None
    for kind, values in (
        ("name", [record.name for record in records]),
        ("sha256", [record.sha256 for record in records]),
    ):
        if len(set(values)) < len(values):
            raise ConfigError(f"{FLAG} {path}: two keys have the same {kind}")
    return tuple(records)


def write_keys(path: Path, records: Sequence[KeyRecord]) -> None:
    """Replace the file at once: a reader sees the old or the new. A new one is for its owner only.

    Raises ConfigError.
    """
    plain = {"keys": [_without_defaults(record) for record in records]}
    if path.suffix == ".json":
        data = msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"
    else:
        data = _HEAD + msgspec.yaml.encode(plain)
    try:
        replace_file(path, data)
    except OSError as error:
        raise ConfigError(f"{FLAG} {path}: {error.strerror}") from None


def _without_defaults(record: KeyRecord) -> dict[str, object]:
    """Name, hash and scopes always; limits where there are any."""
    limits = ("requests_per_minute", "concurrent_requests", "tokens_per_day", "priority")
    shown: dict[str, object] = {
        "name": record.name,
        "sha256": record.sha256,
        "scopes": list(record.scopes),
    }
    return shown | {name: getattr(record, name) for name in limits if getattr(record, name)}
