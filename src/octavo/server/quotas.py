"""Limits of each key: requests per minute, requests at a time, tokens per day.

Owns the counts. Does not know keys' hashes, paths or answers. A minute's requests are a bucket that
fills steadily (capacity one minute's worth); a day is one of UTC; tokens are counted when they have
been used, so a request that has begun is never cut off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from octavo.config.api_keys import KeyRecord
from octavo.errors import OverloadedError
from octavo.foundation.clock import Clock, SystemClock

DAY_S = 86_400
_Headers = list[tuple[bytes, bytes]]


class QuotaExceededError(OverloadedError):
    """A limit of the key is reached; `code` is OpenAI's word for which kind."""

    def __init__(self, message: str, *, retry_after_s: float, code: str) -> None:
        super().__init__(message, retry_after_s=retry_after_s)
        self.code = code


@dataclass(slots=True)
class _Meter:
    """What one tenant has used."""

    requests_left: float  # of the bucket
    filled_s: float  # when that was so
    num_running: int = 0
    day: int = 0  # since the epoch
    num_tokens: int = 0  # used on that day


class DayUse(msgspec.Struct, frozen=True):
    """Tokens of each tenant on one day since the epoch."""

    day: int
    num_tokens: dict[str, int]


class Quotas:
    """The meters of all tenants with a limit."""

    def __init__(self, clock: Clock | None = None, wall_s: Callable[[], float] = time.time) -> None:
        """`wall_s` tells the seconds since the epoch, for days."""
        self._clock, self._wall_s = clock or SystemClock(), wall_s
        self._meters: dict[str, _Meter] = {}
        self._before = DayUse(0, {})  # what was used before the start

    @contextmanager
    def one_request(self, record: KeyRecord) -> Iterator[None]:
        """Count a request while the block runs. Raises QuotaExceededError before it begins."""
        meter = self._meter(record)
        self._check(record, meter)
        if record.requests_per_minute is not None:
            meter.requests_left -= 1
        meter.num_running += 1
        try:
            yield
        finally:
            meter.num_running -= 1

    def spend(self, tenant: str, num_tokens: int) -> None:
        """A request of the tenant has used so many tokens, of prompt and answer."""
        meter = self._meters.get(tenant)
        if meter is not None:
            self._turn_day(meter)
            meter.num_tokens += num_tokens

    def day_use(self) -> DayUse:
        """What has been used today, by tenant."""
        today = self._today()
        used = dict(self._before.num_tokens) if self._before.day == today else {}
        for tenant, meter in self._meters.items():
            self._turn_day(meter)
            used[tenant] = meter.num_tokens
        return DayUse(today, {tenant: count for tenant, count in used.items() if count})

    def restore(self, use: DayUse) -> None:
        """Go on from what an earlier server counted. Before any request."""
        self._before = use

    def budget_wait_s(self, record: KeyRecord) -> float:
        """Seconds until the tenant has tokens to spend; 0 when it has some now."""
        meter = self._meter(record)
        if record.tokens_per_day is None or meter.num_tokens < record.tokens_per_day:
            return 0.0
        return DAY_S - self._wall_s() % DAY_S

    def headers(self, record: KeyRecord) -> _Headers:
        """OpenAI's headers about what is left."""
        meter = self._meter(record)
        found: _Headers = []
        limit = record.requests_per_minute
        if limit is not None:
            missing_s = (limit - meter.requests_left) * 60 / limit
            found += _triple(b"requests", limit, math.floor(meter.requests_left), missing_s)
        budget = record.tokens_per_day
        if budget is not None:
            left_s = DAY_S - self._wall_s() % DAY_S
            found += _triple(b"tokens", budget, max(0, budget - meter.num_tokens), left_s)
        return found

    def _check(self, record: KeyRecord, meter: _Meter) -> None:
        limit = record.concurrent_requests
        if limit is not None and meter.num_running >= limit:
            raise QuotaExceededError(
                f"{meter.num_running} requests of this key run already, at most {limit} may; "
                "wait until one has ended",
                retry_after_s=1,
                code="rate_limit_exceeded",
            )
        wait_s = self.budget_wait_s(record)
        if wait_s:
            raise QuotaExceededError(
                f"this key has used its {record.tokens_per_day} tokens of today; the next day of "
                "UTC brings new ones",
                retry_after_s=wait_s,
                code="insufficient_quota",
            )
        limit = record.requests_per_minute
        if limit is not None and meter.requests_left < 1:
            raise QuotaExceededError(
                f"this key may send {limit} requests per minute; slow down",
                retry_after_s=(1 - meter.requests_left) * 60 / limit,
                code="rate_limit_exceeded",
            )

    def _meter(self, record: KeyRecord) -> _Meter:
        """The meter of a tenant, brought up to now."""
        now_s, limit = self._clock.now_s(), record.requests_per_minute or 0
        meter = self._meters.get(record.tenant)
        if meter is None:
            meter = self._meters[record.tenant] = _Meter(limit, now_s, day=self._before.day)
            meter.num_tokens = self._before.num_tokens.get(record.tenant, 0)
        gained = (now_s - meter.filled_s) * limit / 60
        meter.requests_left = min(float(limit), meter.requests_left + gained)
        meter.filled_s = now_s
        self._turn_day(meter)
        return meter

    def _turn_day(self, meter: _Meter) -> None:
        today = self._today()
        if meter.day != today:
            meter.day, meter.num_tokens = today, 0

    def _today(self) -> int:
        return int(self._wall_s() // DAY_S)


def _triple(kind: bytes, limit: int, left: int, reset_s: float) -> _Headers:
    values = (b"limit", str(limit)), (b"remaining", str(left)), (b"reset", _duration(reset_s))
    return [(b"x-ratelimit-" + word + b"-" + kind, text.encode()) for word, text in values]


def _duration(seconds: float) -> str:
    """As OpenAI writes it: `6m0s`, `1.5s`, `20ms`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.3g}s"
    whole = math.ceil(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return (f"{hours}h" if hours else "") + f"{minutes}m{whole % 60}s"
