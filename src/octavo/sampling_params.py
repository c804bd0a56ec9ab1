"""SamplingParams, BeamSearchParams: what one request may ask, and all checks that need no model.

Owns names, defaults and ranges (vLLM's). Does not know the vocabulary or the context length: those
checks, and the translation into `SamplingSpec`, are in `engine/intake.py`.
"""

from __future__ import annotations

import copy
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from typing import Any, Literal, TypeAlias

from octavo.errors import InvalidRequestError

GREEDY_BELOW = 1e-5  # temperatures below this mean greedy
LOWEST_TEMPERATURE = 0.01  # others are raised to this: smaller ones overflow the softmax
MAX_CHOICES = 128  # `n`: each choice is a request of its own
MAX_STOP_STRINGS = 64
MAX_STOP_LENGTH = 4096  # characters; that much text may be held back
MAX_BAD_WORDS = 256
MAX_STOP_TOKENS = 1024
MAX_TOKEN_IDS = 2**19  # of a list, with what comes twice: no vocabulary is that large
MAX_LOGPROB_TOKENS = 128
MOST_SHOWN = 8  # wrong values that an error names
REPETITION_RANGE = (1e-6, 1e6)  # logits are divided or multiplied by it and must stay finite
SEED_RANGE = (-(2**63), 2**64 - 1)  # signed or unsigned 64 bits
LENGTH_PENALTY_RANGE = (-10.0, 10.0)  # an exponent of the answer's length, which must stay finite

REMOVED = {
    "best_of": "ask for n choices and pick one",
    "use_beam_search": "call beam_search with BeamSearchParams",
    "guided_decoding": "use structured_outputs=StructuredOutputsParams(...)",
    "logits_processors": "load them with the engine, and pass what they read in extra_args",
    "truncate_prompt_tokens": "cut the prompt before the call",
}


class RequestOutputKind(Enum):
    """What each output of a stream holds."""

    CUMULATIVE = 0  # everything so far
    DELTA = 1  # what is new since the output before
    FINAL_ONLY = 2  # one output, at the end


@dataclass(slots=True, kw_only=True)
class StructuredOutputsParams:
    """What a whole answer must look like: exactly one of the fields. Names are vLLM's.

    Raises InvalidRequestError (a ValueError) that names the field.
    """

    json: str | dict[str, Any] | None = None  # a JSON schema, or its text
    regex: str | None = None
    choice: list[str] | None = None  # one of these texts
    grammar: str | None = None  # Lark, or EBNF as GBNF has it
    json_object: bool | None = None  # True: any JSON object
    structural_tag: str | dict[str, Any] | None = None  # free text with parts that fit schemas

    def __post_init__(self) -> None:
        self.verify()

    @property
    def kind(self) -> str:
        """The name of the field that is set."""
        [name] = self._given()
        return name

    def verify(self) -> None:
        """Check that one kind is asked for, and the types of the fields."""
        for name, kinds in STRUCTURED_KINDS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kinds):
                names = " or ".join(_KIND_NAMES[kind] for kind in kinds)
                raise _wrong(f"structured_outputs.{name}", f"must be {names}", value)
        given = self._given()
        if len(given) != 1:
            message = f"structured_outputs must have exactly one of {', '.join(STRUCTURED_KINDS)}"
            found = " and ".join(given) or "none"
            raise InvalidRequestError(f"{message}; got {found}", param="structured_outputs")

    def _given(self) -> list[str]:
        values = ((name, getattr(self, name)) for name in STRUCTURED_KINDS)
        return [name for name, value in values if value is not None and value is not False]


STRUCTURED_KINDS: Mapping[str, tuple[type, ...]] = {
    "json": (str, dict),
    "regex": (str,),
    "choice": (list, tuple),
    "grammar": (str,),
    "json_object": (bool,),
    "structural_tag": (str, dict),
}
_KIND_NAMES = {
    str: "a text",
    dict: "an object",
    list: "a list of texts",
    tuple: "a tuple",
    bool: "true or false",
}


@dataclass(slots=True, kw_only=True, repr=False)
class SamplingParams:
    """How to sample the answer to one prompt, and when to stop.

    Raises InvalidRequestError (a ValueError) that names the field, the value and the range. Fields
    may be assigned later; they are checked again when the request is made.
    """

    n: int = 1  # independent answers, 1 to 128; the i-th is seeded with `seed + i`
    presence_penalty: float = 0.0  # [-2, 2], once per token that is in the output
    frequency_penalty: float = 0.0  # [-2, 2], times the token's count in the output
    repetition_penalty: float = (
        1.0  # [1e-6, 1e6], for tokens of prompt and output (Keskar et al. 2019)
    )
    temperature: float = 1.0  # [0, 2]; below 1e-5 greedy, else at least 0.01
    top_p: float = 1.0  # (0, 1], share of the probability that may be drawn
    top_k: int = 0  # best tokens that may be drawn; 0 and -1 mean all
    min_p: float = 0.0  # [0, 1], least probability relative to the best token
    seed: int | None = None  # 64 bits; None and -1: the engine draws one
    stop: str | list[str] | None = None  # strings that end the answer
    stop_token_ids: list[int] | None = None  # tokens that end the answer
    ignore_eos: bool = False  # go on after the model's own end tokens
    max_tokens: int | None = 16  # None: the rest of the context
    min_tokens: int = 0  # no end token and no stop string before so many tokens
    logprobs: int | None = None  # so many best tokens at each position, and the chosen one; -1: all
    prompt_logprobs: int | None = None  # the same for the prompt
    logprob_token_ids: list[int] | None = None  # these tokens in place of the best ones
    detokenize: bool = True  # False: token ids only, `text` stays empty
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    logit_bias: dict[int, float] | None = None  # token id -> [-100, 100], added to its logit
    allowed_token_ids: list[int] | None = None  # no other token is drawn
    bad_words: list[str] | None = None  # never written
    structured_outputs: StructuredOutputsParams | None = None  # the form of the answer
    extra_args: dict[str, Any] | None = None  # for logits processors that the engine has loaded

    def __new__(cls, **given: Any) -> SamplingParams:
        """Refuse unknown names; the generated `__init__` takes the known ones."""
        for name in given:
            if name not in FIELD_DEFAULTS:
                raise InvalidRequestError(_unknown_field(name), param=name)
        return object.__new__(cls)

    def __post_init__(self) -> None:
        self.verify()

    @classmethod
    def from_optional(
        cls, defaults: Mapping[str, Any] | None = None, /, **given: Any
    ) -> SamplingParams:
        """Parameters where None means "not given": then `defaults`, then the field's own default.

        `max_tokens=None` without an entry in `defaults` keeps its meaning, the rest of the context.
        """
        chosen = dict(defaults or {})
        chosen.update((name, value) for name, value in given.items() if value is not None)
        if "max_tokens" in given:
            chosen.setdefault("max_tokens", None)
        return cls(**chosen)

    def replace(self, **changes: Any) -> SamplingParams:
        """A checked copy with other values."""
        current: dict[str, Any] = {name: getattr(self, name) for name in FIELD_DEFAULTS}
        return copy.deepcopy(SamplingParams(**(current | changes)))

    def clone(self) -> SamplingParams:
        """An independent copy."""
        return copy.deepcopy(self)

    @property
    def is_greedy(self) -> bool:
        """Whether the best token is taken instead of a draw."""
        return self.temperature < GREEDY_BELOW

    @property
    def wants_logprobs(self) -> bool:
        """Whether tokens of the answer come with log-probabilities."""
        return self.logprobs is not None or bool(self.logprob_token_ids)

    @property
    def stop_strings(self) -> list[str]:
        """`stop` as a list."""
        if self.stop is None:
            return []
        return [self.stop] if isinstance(self.stop, str) else self.stop

    def verify(self) -> None:
        """Check every field and bring it into its one form: `stop` a list, numbers plain ones."""
        self._verify_numbers()
        self._verify_flags()
        self._verify_lengths()
        self._verify_stops()
        if self.logit_bias is not None:
            self.logit_bias = _bias("logit_bias", self.logit_bias)
        if self.allowed_token_ids is not None:
            self.allowed_token_ids = _token_ids("allowed_token_ids", self.allowed_token_ids)
            if not self.allowed_token_ids:
                raise _wrong("allowed_token_ids", "must hold at least one token id", [])
        if self.bad_words is not None:
            self.bad_words = _strings("bad_words", self.bad_words, MAX_BAD_WORDS)
        if self.structured_outputs is not None:
            if not isinstance(self.structured_outputs, StructuredOutputsParams):
                rule = "must be a StructuredOutputsParams"
                raise _wrong("structured_outputs", rule, self.structured_outputs)
            self.structured_outputs.verify()
        if self.extra_args is not None:
            _check_extra_args(self.extra_args)

    def _verify_numbers(self) -> None:
        self.temperature = _number("temperature", self.temperature, 0.0, 2.0)
        self.top_p = _number("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0.0:
            raise _wrong("top_p", "must be above 0 and at most 1", self.top_p)
        self.min_p = _number("min_p", self.min_p, 0.0, 1.0)
        self.presence_penalty = _number("presence_penalty", self.presence_penalty, -2.0, 2.0)
        self.frequency_penalty = _number("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        self.repetition_penalty = _number(
            "repetition_penalty", self.repetition_penalty, *REPETITION_RANGE
        )
        self.top_k = _whole("top_k", self.top_k, -1, None, "; 0 and -1 turn it off")
        if self.seed is not None:
            self.seed = _whole("seed", self.seed, *SEED_RANGE)
            if self.seed == -1:
                self.seed = None

    def _verify_flags(self) -> None:
        for name in FLAGS:
            _check_flag(name, getattr(self, name))
        if not isinstance(self.output_kind, RequestOutputKind):
            raise _wrong("output_kind", "must be a RequestOutputKind", self.output_kind)

    def _verify_lengths(self) -> None:
        self.n = _whole("n", self.n, 1, MAX_CHOICES)
        if self.n > 1 and self.is_greedy:
            raise _wrong("n", "must be 1 with greedy sampling (temperature 0)", self.n)
        self.min_tokens = _whole("min_tokens", self.min_tokens, 0, None)
        if self.max_tokens is not None:
            self.max_tokens = _whole("max_tokens", self.max_tokens, 1, None)
            if self.min_tokens > self.max_tokens:
                limit = f"must be at most max_tokens ({self.max_tokens})"
                raise _wrong("min_tokens", limit, self.min_tokens)
        hint = "; -1 means the whole vocabulary"
        if self.logprobs is not None:
            self.logprobs = _whole("logprobs", self.logprobs, -1, None, hint)
        if self.prompt_logprobs is not None:
            self.prompt_logprobs = _whole("prompt_logprobs", self.prompt_logprobs, -1, None, hint)
        if self.logprob_token_ids is not None:
            self._verify_logprob_tokens()

    def _verify_logprob_tokens(self) -> None:
        ids = self.logprob_token_ids = _token_ids("logprob_token_ids", self.logprob_token_ids)
        if len(ids) > MAX_LOGPROB_TOKENS:
            raise InvalidRequestError(
                f"logprob_token_ids may hold at most {MAX_LOGPROB_TOKENS} ids, got {len(ids)}",
                param="logprob_token_ids",
            )
        if ids and self.logprobs not in (None, len(ids)):
            limit = f"must be {len(ids)} or left out beside so many logprob_token_ids"
            raise _wrong("logprobs", limit, self.logprobs)

    def _verify_stops(self) -> None:
        if self.stop is not None:
            given = [self.stop] if isinstance(self.stop, str) else self.stop
            self.stop = _strings("stop", given, MAX_STOP_STRINGS, MAX_STOP_LENGTH)
            if self.stop and not self.detokenize:
                raise _wrong("stop", "needs detokenize=True", self.stop)
        if self.stop_token_ids is not None:
            self.stop_token_ids = _token_ids("stop_token_ids", self.stop_token_ids)
            if len(self.stop_token_ids) > MAX_STOP_TOKENS:
                raise InvalidRequestError(
                    f"stop_token_ids may hold at most {MAX_STOP_TOKENS} ids, "
                    f"got {len(self.stop_token_ids)}",
                    param="stop_token_ids",
                )

    def __repr__(self) -> str:
        shown = (
            f"{name}={getattr(self, name)!r}"
            for name, default in FIELD_DEFAULTS.items()
            if getattr(self, name) != default
        )
        return f"SamplingParams({', '.join(shown)})"


EarlyStopping: TypeAlias = bool | Literal["never"]


@dataclass(slots=True)
class BeamSearchParams:
    """How to search for the likeliest answers to one prompt. Names and order are vLLM's.

    An answer's score is the sum of its log-probabilities divided by the number of its tokens to the
    power of `length_penalty`. `early_stopping` has transformers' meaning: True ends the search when
    `beam_width` answers are complete, False when no running beam is likely to get better than the
    worst of them, "never" when none can.

    Raises InvalidRequestError (a ValueError) that names the field, the value and the range.
    """

    beam_width: int  # beams that run at a time, and answers that come back; 1 to 128
    max_tokens: int
    ignore_eos: bool = False  # go on after the model's own end tokens
    temperature: float = 0.0  # the search draws nothing: no other value is taken
    length_penalty: float = 1.0  # [-10, 10]; above 0 favours long answers
    include_stop_str_in_output: bool = False  # keep the end token in `tokens`
    early_stopping: EarlyStopping = False

    def __post_init__(self) -> None:
        self.verify()

    def verify(self) -> None:
        """Check every field."""
        self.beam_width = _whole("beam_width", self.beam_width, 1, MAX_CHOICES)
        self.max_tokens = _whole("max_tokens", self.max_tokens, 1, None)
        for name in ("ignore_eos", "include_stop_str_in_output"):
            _check_flag(name, getattr(self, name))
        self.temperature = _number("temperature", self.temperature, 0.0, math.inf)
        if self.temperature != 0.0:
            raise _wrong("temperature", "must be 0 with beam search", self.temperature)
        self.length_penalty = _number("length_penalty", self.length_penalty, *LENGTH_PENALTY_RANGE)
        if self.early_stopping != "never":
            _check_flag("early_stopping", self.early_stopping, ' or "never"')


FIELD_DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in fields(SamplingParams) if field.default is not MISSING
}
FLAGS = tuple(name for name, default in FIELD_DEFAULTS.items() if isinstance(default, bool))


def shown(value: object) -> str:
    """A value as an error message may repeat it: never more than a few dozen characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def shown_some(values: Sequence[object]) -> str:
    """The first of several wrong values, and how many more there are."""
    more = len(values) - MOST_SHOWN
    return ", ".join(map(shown, values[:MOST_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _wrong(name: str, rule: str, value: object) -> InvalidRequestError:
    return InvalidRequestError(f"{name} {rule}, got {shown(value)}", param=name)


def _check_flag(name: str, value: object, others: str = "") -> None:
    if value is not True and value is not False:
        raise _wrong(name, f"must be true or false{others}", value)


def _check_extra_args(given: object) -> None:
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise _wrong("extra_args", "must be an object of names and values", given)


def _unknown_field(name: str) -> str:
    import difflib  # noqa: PLC0415 - only a mistake needs it

    if name in REMOVED:
        return f"unknown sampling parameter {shown(name)}: {REMOVED[name]}"
    near = difflib.get_close_matches(name, FIELD_DEFAULTS, n=1, cutoff=0.75)
    hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(FIELD_DEFAULTS)}"
    return f"unknown sampling parameter {shown(name)}. {hint}"


def _number(name: str, value: Any, low: float, high: float) -> float:
    """A finite float in [low, high]."""
    if type(value) is not float:
        value = _as_float(name, value)
    if low <= value <= high and value != math.inf:  # false for NaN
        return value  # type: ignore[no-any-return]
    if high == math.inf:
        raise _wrong(name, f"must be a finite number, at least {low:g}", value)
    raise _wrong(name, f"must be between {low:g} and {high:g}", value)


def _as_float(name: str, value: Any) -> float:
    """A float from an int or from another library's number; text and booleans are no numbers."""
    if isinstance(value, str | bytes | bool) or not hasattr(value, "__float__"):
        raise _wrong(name, "must be a number", value)
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(name, "must be a number", value) from None


def _whole(name: str, value: Any, low: int, high: int | None, hint: str = "") -> int:
    """A whole number in [low, high]."""
    if type(value) is not int:
        value = _as_int(name, value)
    if low <= value and (high is None or value <= high):
        return value  # type: ignore[no-any-return]
    if high is None:
        raise _wrong(name, f"must be at least {low}{hint}", value)
    raise _wrong(name, f"must be between {low} and {high}{hint}", value)


def _as_int(name: str, value: Any) -> int:
    """An int from another library's integer; booleans and floats are none."""
    if isinstance(value, bool):
        raise _wrong(name, "must be a whole number", value)
    try:
        return operator.index(value)
    except TypeError:
        raise _wrong(name, "must be a whole number", value) from None


def _items(name: str, value: Any, kind: str) -> Sequence[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise _wrong(name, f"must be a list of {kind}", value)
    return value


def _strings(name: str, value: Any, most: int, longest: int | None = None) -> list[str]:
    """A list of non-empty strings, in their order, each once."""
    items = _items(name, value, "strings")
    if len(items) > most:
        raise InvalidRequestError(
            f"{name} may hold at most {most} strings, got {len(items)}", param=name
        )
    for item in items:
        if not isinstance(item, str):
            raise _wrong(name, "must be a list of strings", value)
        if not item:
            raise InvalidRequestError(f"{name} must not hold an empty string", param=name)
        if longest is not None and len(item) > longest:
            raise InvalidRequestError(
                f"{name}: a string may have at most {longest} characters, got {len(item)}",
                param=name,
            )
    return list(dict.fromkeys(items))


def _token_ids(name: str, value: Any) -> list[int]:
    """A list of non-negative token ids, each once."""
    items = _items(name, value, "token ids")
    if len(items) > MAX_TOKEN_IDS:
        raise InvalidRequestError(
            f"{name} may hold at most {MAX_TOKEN_IDS} token ids, got {len(items)}", param=name
        )
    if set(map(type, items)) == {int} and min(items) >= 0:  # without a step in Python for each
        return list(dict.fromkeys(items))
    return list(dict.fromkeys(_whole(name, item, 0, None) for item in items))


def _bias(name: str, value: Any) -> dict[int, float]:
    """Token id -> bias; ids may be decimal text, as JSON has no other keys."""
    if not isinstance(value, Mapping):
        raise _wrong(name, "must map token ids to numbers", value)
    bias, wrong = {}, []
    for key, amount in value.items():
        is_text = isinstance(key, str) and len(key) < 20 and key.isascii() and key.isdigit()
        token_id = int(key) if is_text else key
        try:
            token_id = _whole(name, token_id, 0, None)
        except InvalidRequestError:
            wrong.append(key)
            continue
        bias[token_id] = _number(name, amount, -100.0, 100.0)
    if wrong:
        message = f"{name} must have token ids as keys, got {shown_some(wrong)}"
        raise InvalidRequestError(message, param=name)
    return bias
