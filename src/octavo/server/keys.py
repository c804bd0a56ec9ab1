"""All keys of a server: those of the command line, and those of a file that may change.

Owns which key is whose, and reading the file again. Does not know paths, limits or answers.
A file that has become wrong changes nothing: the keys before it stay, and the log says why.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from octavo.config.api_keys import SCOPES, KeyRecord, KeyScope, belongs_to_a_record, read_keys
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError
from octavo.foundation.clock import Clock, SystemClock

logger = logging.getLogger(__name__)
LOOK_EVERY_S = 1.0
_PLAIN_SCOPES: tuple[KeyScope, ...] = ("inference", "batches", "metrics")  # of --api-key
_Stamp = tuple[int, int, int]  # time, size and number of a file
_GONE: _Stamp = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose key it is, and what it opens."""

    tenant: str
    scopes: frozenset[KeyScope]
    record: KeyRecord | None = None  # of a key of the file

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    def may(self, scope: KeyScope) -> bool:
        """Whether the key opens paths of this scope; an administrator's opens all."""
        return scope in self.scopes or self.is_admin


@dataclass(frozen=True, slots=True)
class _Credential:
    digest: bytes
    caller: Caller


class KeyRing:
    """Finds the caller of a key. Keys are compared as hashes in constant time; all of them, always.

    Raises ConfigError for a file that is wrong at the start.
    """

    def __init__(self, config: ServerConfig, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._path = None if config.api_keys_file is None else Path(config.api_keys_file)
        self._fixed = [
            *(_of_flag(key, _PLAIN_SCOPES) for key in config.api_key),
            *(_of_flag(key, SCOPES) for key in config.admin_api_key),
        ]
        self.asks = bool(config.api_key) or self._path is not None
        self.asks_admins = self.asks or bool(config.admin_api_key)
        self._records: dict[str, KeyRecord] = {}  # by tenant
        self._credentials = self._fixed
        self._stamp: _Stamp | None = None
        self._looked_s = self._clock.now_s()
        self._is_reading = False
        if self._path is not None:
            self._stamp = _stamp_of(self._path)
            self._take(read_keys(self._path))

    def read_again(self) -> None:
        """The next request reads the file, whether it looks changed or not."""
        self._stamp = None
        self._looked_s = float("-inf")

    async def refresh(self) -> None:
        """Read the file if it has changed, looking at most once a second, off the event loop."""
        now_s = self._clock.now_s()
        if self._path is None or self._is_reading or now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        stamp = _stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._is_reading = True
        try:
            self._stamp = stamp  # what is wrong is said once
            self._take(await asyncio.to_thread(read_keys, self._path))
            logger.info("%d keys were read from --api-keys-file", len(self._records))
        except ConfigError as error:
            logger.error("the keys stay as they were: %s", error)
        finally:
            self._is_reading = False

    def caller(self, key: bytes) -> Caller | None:
        """Whose key it is; None for one that is not known."""
        digest, found = hashlib.sha256(key).digest(), None
        for credential in self._credentials:
            if hmac.compare_digest(digest, credential.digest) and (
                found is None or credential.caller.is_admin
            ):
                found = credential.caller
        return found

    def record(self, tenant: str) -> KeyRecord | None:
        """The record of a tenant of the file."""
        return self._records.get(tenant)

    def is_revoked(self, tenant: str) -> bool:
        """Whether the tenant's key was in the file and is no more."""
        return belongs_to_a_record(tenant) and tenant not in self._records

    def _take(self, records: Iterable[KeyRecord]) -> None:
        self._records = {record.tenant: record for record in records}
        self._credentials = self._fixed + [
            _Credential(
                bytes.fromhex(record.sha256),
                Caller(record.tenant, frozenset(record.scopes), record),
            )
            for record in self._records.values()
        ]


def _of_flag(key: str, scopes: Iterable[KeyScope]) -> _Credential:
    digest = hashlib.sha256(key.encode()).digest()
    return _Credential(digest, Caller(digest.hex()[:16], frozenset(scopes)))


def _stamp_of(path: Path) -> _Stamp:
    """What changes with the file."""
    try:
        facts = os.stat(path)
    except OSError:
        return _GONE
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
