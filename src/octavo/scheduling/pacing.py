"""Pacing: how fast this machine computes, and how many prompt tokens a step may carry beside rows
that decode.

Owns: running estimates of four speeds, the limit that follows from them.
Does not know: requests, blocks, a clock. Times are told to it after each step.

    step_s = decode_step_s(rows) + token_s * prompt tokens

A row that decodes gets one token per step, so a step that also computes a chunk of a prompt makes
all its rows wait. `prefill_limit` keeps such a step within `max_slowdown` times a step of decoding
alone. Attention makes later chunks of a prompt dearer: the cost per token is that of the last few
chunks, and since a chunk is near its predecessor, following them is as good as a model of context.

The price is prompt speed: with a slowdown of s at most 1 - 1/s of the time goes to prompts. While
fewer requests wait for their first token than decode, that is the point. When more wait, the queue
grows, few rows decode, and decoding few rows wastes the machine; so the allowance grows in
proportion: with k waiting for each decoding one, a step may take 1 + k (s - 1) times as long. A
backlog is then computed at full speed, and chat under light load is smooth.

Estimates are medians of the last few samples: one hiccup of the machine counts nothing, a lasting
change counts after three steps. No chunk size ever changes an answer.

Whether a prompt can be in time is another question: an answer must not be too dear, or requests are
given up that would have made it. So `prefill_s` is the least that was seen, of chunks that are long
enough for their tokens to matter: a step of two tokens takes the time of reading the weights.
"""

from __future__ import annotations

from bisect import bisect_left

MIN_CHUNK = 1
"""Tokens. A prompt always progresses by so many, whatever the estimates say."""

_CHUNK_UNIT = 8  # tokens; chunks of several units are multiples of it: shapes that kernels like
_NUM_SAMPLES = 5
_TELLING_CHUNK = 32  # tokens; what shorter ones take says nothing about long prompts
_STALE_AFTER = 64  # steps with decoding rows: cost of measuring again is at most 1 step in so many
_PROBE_PAUSE = 32  # steps between two probes, also when the number of rows changes all the time
_EXACT_ROWS = 8  # up to here each number of rows has an estimate of its own
_SHRINK, _GROWTH = 0.5, 4.0  # a sample counts at most as so many times the estimate


class RecentMedian:
    """Median of the last few samples."""

    __slots__ = ("_place", "_samples", "value")

    def __init__(self) -> None:
        self._samples: list[float] = []
        self._place = 0  # of the oldest sample, once there are enough
        self.value: float | None = None  # None before the first sample

    @property
    def least(self) -> float | None:
        """The smallest of the samples that count; None before the first one."""
        return min(self._samples, default=None)

    def add(self, sample: float) -> None:
        """Take one sample in."""
        samples = self._samples
        if len(samples) < _NUM_SAMPLES:
            samples.append(sample)
        else:
            samples[self._place] = sample
            self._place = (self._place + 1) % _NUM_SAMPLES
        self.value = sorted(samples)[len(samples) // 2]

    def add_near(self, sample: float) -> None:
        """The same for a difference of noisy numbers: it may move the estimate only so far."""
        if self.value is not None:
            sample = min(max(sample, _SHRINK * self.value), _GROWTH * self.value)
        if sample > 0:
            self.add(sample)


class _DecodeSpeed:
    """Seconds of steps with about so many decoding rows and nothing else."""

    __slots__ = ("measured_at", "rows", "seconds")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.seconds = RecentMedian()
        self.measured_at = 0  # number of the step


class MeasuredSpeed:
    """What the steps so far say about the next one. An estimate is None before its first sample."""

    def __init__(self) -> None:
        self._decode: dict[int, _DecodeSpeed] = {}  # by class of rows
        self._beside_s = RecentMedian()  # seconds per prompt token, beside decoding rows
        self._alone_s = RecentMedian()  # in steps of prompts only; counts reading the weights too
        self._added_s = RecentMedian()  # that each token adds to a step; of telling chunks only
        self._block_s = RecentMedian()
        self._num_decode_steps = 0  # steps with decoding rows
        self._probed_at = -_PROBE_PAUSE

    def note_step(
        self,
        num_prefill_tokens: int,
        num_decode_rows: int,
        compute_s: float,
        num_moved_blocks: int = 0,
        swap_s: float = 0.0,
    ) -> None:
        """A step ran. A draft costs what a row that decodes costs, and counts as one.

        One that moved blocks tells only of moving, so it does not matter whether
        `compute_s` contains `swap_s`. Times that are not positive tell nothing.
        """
        if num_decode_rows:
            self._num_decode_steps += 1
        if num_moved_blocks:
            if swap_s > 0:
                self._block_s.add(swap_s / num_moved_blocks)
            return
        if compute_s <= 0:
            return
        if num_prefill_tokens >= _TELLING_CHUNK:
            self._note_telling(num_prefill_tokens, num_decode_rows, compute_s)
        if not num_decode_rows:
            if num_prefill_tokens >= MIN_CHUNK:
                self._alone_s.add(compute_s / num_prefill_tokens)
        elif not num_prefill_tokens:
            self._note_decode(num_decode_rows, compute_s)
        elif num_prefill_tokens >= MIN_CHUNK:
            decode_s = self.decode_step_s(num_decode_rows)
            if decode_s is not None:
                self._beside_s.add_near((compute_s - decode_s) / num_prefill_tokens)

    @property
    def block_s(self) -> float | None:
        """Seconds to move one block between its pool and a host slot."""
        return self._block_s.value

    @property
    def token_s(self) -> float | None:
        """Seconds per prompt token as prompts come, the cheaper of both ways to compute one."""
        known = [one.value for one in (self._beside_s, self._alone_s) if one.value is not None]
        return min(known, default=None)

    def prefill_s(self, num_tokens: int) -> float:
        """Least seconds that so many prompt tokens take, never too dear, so that nobody is given
        up who could make it; 0 before a chunk of some length was measured."""
        return num_tokens * (self._added_s.least or 0.0)

    def decode_step_s(self, num_rows: int) -> float | None:
        """Seconds of a step in which so many rows decode and no prompt is computed.

        Between measured numbers of rows the line between them; beyond them the nearest, scaled
        down for fewer rows by half of the ratio (weights are read for one row as for many).
        """
        same = self._decode.get(_class_of(num_rows))
        if same is not None:
            return same.seconds.value
        known = sorted(
            (one.rows, one.seconds.value)
            for one in self._decode.values()
            if one.seconds.value is not None
        )
        if not known:
            return None
        place = bisect_left(known, (num_rows, 0.0))
        if place == len(known):
            return known[-1][1]
        more_rows, more_s = known[place]
        if not place:
            return more_s * (0.5 + 0.5 * num_rows / more_rows)
        less_rows, less_s = known[place - 1]
        return less_s + (more_s - less_s) * (num_rows - less_rows) / (more_rows - less_rows)

    def token_price(self, num_rows: int) -> float | None:
        """What a further token costs a step in which `num_rows` rows decode, in units of what the
        step costs for each of its rows: 1 where arithmetic bounds steps, less where reading weights
        does. None before steps were measured.
        """
        token_s, step_s = self.token_s, self.decode_step_s(num_rows)
        if token_s is None or not step_s:
            return None
        return min(1.0, token_s * num_rows / step_s)

    def prefill_limit(self, num_decoding: int, num_stalled: int, max_slowdown: float) -> int | None:
        """Most prompt tokens that the next step should compute; None for no limit.

        `num_decoding` rows get a token in it; `num_stalled` requests wait for their first one or
        are being prefilled. 0 asks for a step of decoding alone, because it must be measured:
        never twice in `_PROBE_PAUSE` steps. Before anything is measured there is no limit.
        """
        if not (max_slowdown and num_decoding) or self.token_s is None:
            return None
        if self._should_probe(num_decoding):
            self._probed_at = self._num_decode_steps
            return 0
        decode_s = self.decode_step_s(num_decoding)
        token_s = self._beside_s.value or self._alone_s.value
        if decode_s is None or token_s is None:
            return None
        pressure = max(1.0, num_stalled / num_decoding)
        num_tokens = int(decode_s * (max_slowdown - 1.0) * pressure / token_s)
        if num_tokens > 4 * _CHUNK_UNIT:
            num_tokens -= num_tokens % _CHUNK_UNIT
        return max(num_tokens, MIN_CHUNK)

    def _note_telling(self, num_tokens: int, num_decode_rows: int, compute_s: float) -> None:
        """A chunk was long enough: what it added to a step that would have been made without it."""
        without_s = self.decode_step_s(num_decode_rows or 1)
        if without_s is None:
            if num_decode_rows:
                return
            without_s = 0.0
        if compute_s > without_s:
            self._added_s.add((compute_s - without_s) / num_tokens)

    def _note_decode(self, num_rows: int, compute_s: float) -> None:
        row_class = _class_of(num_rows)
        speed = self._decode.get(row_class)
        if speed is None:
            speed = self._decode[row_class] = _DecodeSpeed(num_rows)
        speed.rows = num_rows
        speed.seconds.add(compute_s)
        speed.measured_at = self._num_decode_steps

    def _should_probe(self, num_rows: int) -> bool:
        """Whether decoding of about so many rows was not measured lately."""
        if self._num_decode_steps - self._probed_at < _PROBE_PAUSE:
            return False
        speed = self._decode.get(_class_of(num_rows))
        return speed is None or self._num_decode_steps - speed.measured_at >= _STALE_AFTER


def _class_of(num_rows: int) -> int:
    """Numbers of rows that differ by less than an eighth share an estimate."""
    if num_rows <= _EXACT_ROWS:
        return num_rows
    shift = num_rows.bit_length() - 4
    return (shift + 1) * 16 + (num_rows >> shift)
