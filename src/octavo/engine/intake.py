"""Intake: prompt + SamplingParams -> checked EngineRequests. Every check that needs the model.

Owns the refusal of everything the engine could not serve; what passes here, the core never refuses.
Does not know queues: whether there is room *now* is the scheduler's question.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from octavo.config.engine import SchedulerConfig
from octavo.contracts.grammar import ThinkingSpec
from octavo.contracts.kv_plan import KVPlan
from octavo.contracts.request import BeamSpec, EngineRequest
from octavo.contracts.step import SamplingSpec
from octavo.engine.beam_search import check_beams_fit, check_combination, most_tokens_of_beams
from octavo.engine.encoded import EncodedPrompt
from octavo.engine.grammars import grammar_spec
from octavo.engine.pooler import Pooler
from octavo.errors import InvalidRequestError, PromptTooLongError
from octavo.foundation.clock import Clock
from octavo.logits_processors.loading import ProcessorClass, check_request, passed_params
from octavo.pooling_params import PoolingParams
from octavo.prompts import PromptType
from octavo.sampling_params import LOWEST_TEMPERATURE, SamplingParams, shown, shown_some
from octavo.scheduling.admission import check_fits, largest_request
from octavo.text.stretches import STRETCH

PROMPT_FIELDS = frozenset({"prompt", "prompt_token_ids", "token_type_ids", "cache_salt"})
PRIORITY_RANGE = (-(2**63), 2**63 - 1)
LONGEST_TOKEN = 256  # characters; the longest in known vocabularies have half of that
SEED_MASK = 2**64 - 1
LONGEST_TIMEOUT_S = 1e9
PROMPT_FORMS = "a text, a list of token ids, or a dict with `prompt` or `prompt_token_ids`"


class TextEncoder(Protocol):
    """What intake needs of a tokenizer."""

    def encode(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        param: str = "prompt",
        enough: int | None = None,
    ) -> list[int]:
        """Of a very long text no more than shows that there are more than `enough` ids."""


class IntakeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a request is checked against."""

    vocab_size: int
    max_model_len: int  # prompt and answer together
    kv_plan: KVPlan
    scheduler: SchedulerConfig
    max_logprobs: int = 20  # -1: no cap
    eos_token_ids: tuple[int, ...] = ()  # of the model, its generation config and its tokenizer
    num_segments: int = 0  # texts that the model can tell apart by token_type_ids
    pooler: Pooler | None = None  # the model makes vectors instead of text
    logits_processors: tuple[ProcessorClass, ...] = ()


class Intake:
    """Makes requests. One thread at a time, except `encode`, which any thread may call."""

    def __init__(
        self, tokenizer: TextEncoder, limits: IntakeLimits, *, seed: int | None, clock: Clock
    ) -> None:
        self.limits = limits
        self._tokenizer = tokenizer
        self._seeds = random.Random(seed)  # noqa: S311 - draws need no secrecy
        self._clock = clock

    def encode(self, prompt: PromptType) -> EncodedPrompt:
        """The prompt's token ids.

        Raises InvalidRequestError for a wrong form, an empty prompt or ids outside the vocabulary,
        PromptTooLongError when no room is left for an answer.
        """
        text, token_ids, cache_salt = _parts_of(prompt)
        types = prompt.get("token_type_ids") if isinstance(prompt, Mapping) else None
        if token_ids is not None:
            self._check_prompt_length(len(token_ids))  # before the ids are looked at
            ids = self._checked_ids(token_ids)
        else:
            assert text is not None
            self.check_text_length(text)
            ids = self._tokenizer.encode(text, enough=self.limits.max_model_len)
        if not ids:
            raise InvalidRequestError("prompt must not be empty", param="prompt")
        self._check_prompt_length(len(ids), is_cut=len(text or "") > STRETCH)
        return EncodedPrompt(ids, text, cache_salt, self._second_segment(ids, types))

    def check_text_length(self, text: str, param: str = "prompt") -> None:
        """Refuse a text that no tokenizer could bring into the context, before it costs time.

        Raises PromptTooLongError.
        """
        longest = self.limits.max_model_len
        if len(text) > LONGEST_TOKEN * longest:
            what = "the prompt" if param == "prompt" else param
            raise PromptTooLongError(
                f"This model's maximum context length is {longest} tokens, but {what} has "
                f"{len(text)} characters, which is more than {len(text) // LONGEST_TOKEN} tokens. "
                f"Shorten {what}.",
                param=param,
            )

    def requests(
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: SamplingParams,
        *,
        priority: int = 0,
        timeout: float | None = None,
        tenant: str = "",
        beam: BeamSpec | None = None,
        thinking: ThinkingSpec | None = None,
    ) -> list[EngineRequest]:
        """`params.n` requests that share the prompt, in the order of their choices.

        One request with `beam`, a search in place of sampling. `timeout`: seconds from now that the
        answer may take. `structured_outputs` have been compiled by `Grammars.check`. Raises
        InvalidRequestError that names the field and the limit.
        """
        self.require_text()
        params.verify()
        self._check_priority(priority)
        self._check_token_ids(params)
        check_request(self.limits.logits_processors, params)
        max_tokens = self._max_tokens(len(prompt.token_ids), params)
        if beam is not None:
            max_tokens = self._max_beam_tokens(params, beam, len(prompt.token_ids), max_tokens)
        wanted = params.structured_outputs
        seed = self._seeds.getrandbits(64) if params.seed is None else params.seed
        now_s = self._clock.now_s()
        first = EngineRequest(
            request_id=request_id,
            prompt_token_ids=prompt.token_ids,
            sampling=self._sampling(params, seed & SEED_MASK, is_search=beam is not None),
            max_tokens=max_tokens,
            eos_token_ids=[] if params.ignore_eos else list(self.limits.eos_token_ids),
            stop_token_ids=params.stop_token_ids or [],
            priority=priority,
            arrival_s=now_s,
            cache_salt=prompt.cache_salt,
            tenant=tenant,
            beam=beam,
            grammar=None if wanted is None else grammar_spec(wanted),
            thinking=thinking,
            deadline_s=None if timeout is None else now_s + _checked_timeout(timeout),
            skip_prefix_cache=params.prompt_logprobs is not None,
        )
        if params.n == 1:
            return [first]
        first = msgspec.structs.replace(first, request_id=f"{request_id}/0")
        return [first, *(_fork_of(first, request_id, n) for n in range(1, params.n))]

    def require_text(self) -> None:
        """Raises InvalidRequestError where the model makes vectors instead."""
        if self.limits.pooler is not None:
            tasks = " and ".join(self.limits.pooler.tasks)
            raise InvalidRequestError(
                f"this model makes no text, its tasks are {tasks}; ask for those, or start the "
                "engine with --runner generate if it has a language model's head"
            )

    def pooling_request(
        self,
        request_id: str,
        prompt: EncodedPrompt,
        params: PoolingParams,
        *,
        priority: int = 0,
        timeout: float | None = None,
        tenant: str = "",
    ) -> EngineRequest:
        """The request for a vector of a prompt. Raises InvalidRequestError with field and fix."""
        pooler = self.limits.pooler
        if pooler is None:
            raise InvalidRequestError(
                "this model generates text; to make vectors with it start the engine with "
                "--runner pooling"
            )
        pooler.check(params)
        self._check_priority(priority)
        num_tokens = len(prompt.token_ids)
        check_fits(self.limits.kv_plan, self.limits.scheduler, num_tokens, 1)
        now_s = self._clock.now_s()
        method = pooler.method_of(params)
        return EngineRequest(
            request_id=request_id,
            prompt_token_ids=prompt.token_ids,
            sampling=SamplingSpec(),
            max_tokens=1,
            priority=priority,
            arrival_s=now_s,
            cache_salt=prompt.cache_salt,
            tenant=tenant,
            deadline_s=None if timeout is None else now_s + _checked_timeout(timeout),
            skip_prefix_cache=method != "last",
            pooling=method,
            second_segment=prompt.second_segment,
        )

    def _second_segment(self, ids: Sequence[int], types: object) -> int:
        """Where the second of two texts begins by `token_type_ids`; -1: nowhere."""
        if types is None:
            return -1
        if not _is_list(types) or len(types) != len(ids):  # type: ignore[arg-type]
            raise InvalidRequestError(
                f"token_type_ids must be a list of {len(ids)} numbers, one for each token",
                param="token_type_ids",
            )
        kinds = list(types)  # type: ignore[call-overload]
        begin = kinds.index(1) if 1 in kinds else len(kinds)
        if kinds != [0] * begin + [1] * (len(kinds) - begin):
            message = "token_type_ids must be zeros for the first text, then ones for the second"
            raise InvalidRequestError(message, param="token_type_ids")
        if begin < len(kinds) and self.limits.num_segments < 2:
            message = "token_type_ids: this model does not tell two texts apart; leave them out"
            raise InvalidRequestError(message, param="token_type_ids")
        return begin if begin < len(kinds) else -1

    def _checked_ids(self, token_ids: Sequence[int]) -> list[int]:
        ids = list(token_ids)
        if set(map(type, ids)) - {int}:
            ids = [_token_id(value) for value in ids]
        if ids and not (min(ids) >= 0 and max(ids) < self.limits.vocab_size):
            wrong = next(id for id in ids if not 0 <= id < self.limits.vocab_size)
            raise self._outside("prompt", wrong)
        return ids

    def _outside(self, name: str, *ids: int) -> InvalidRequestError:
        which = f"token id {shown_some(ids)} is" if len(ids) == 1 else f"{shown_some(ids)} are"
        message = f"{name}: {which} out of vocabulary, which has {self.limits.vocab_size} tokens"
        return InvalidRequestError(message, param=name)

    def _check_prompt_length(self, num_tokens: int, *, is_cut: bool = False) -> None:
        """`is_cut`: nobody may have counted all tokens."""
        longest = self.limits.max_model_len
        needs_answer = self.limits.pooler is None
        if num_tokens + needs_answer > longest:
            answer = " and an answer needs at least 1" if needs_answer else ""
            count = f"at least {num_tokens}" if is_cut else str(num_tokens)
            raise PromptTooLongError(
                f"This model's maximum context length is {longest} tokens, but the prompt has "
                f"{count}{answer}. Please reduce the length of the input prompt, or start "
                f"the engine with a larger max_model_len.",
                param="prompt",
            )

    def _max_tokens(self, num_prompt_tokens: int, params: SamplingParams) -> int:
        """The request's `max_tokens`, or the rest of the context."""
        limits, wanted = self.limits, params.max_tokens
        in_context = limits.max_model_len - num_prompt_tokens
        if wanted is None:
            in_pool = largest_request(limits.kv_plan) - num_prompt_tokens
            wanted = max(1, min(in_context, in_pool))
        elif wanted > in_context:
            raise PromptTooLongError(
                f"This model's maximum context length is {limits.max_model_len} tokens, but the "
                f"prompt has {num_prompt_tokens} and max_tokens asks for {shown(wanted)} more. "
                f"Use max_tokens of at most {in_context}, or None for the rest of the context.",
                param="max_tokens",
            )
        check_fits(limits.kv_plan, limits.scheduler, num_prompt_tokens, wanted)
        return wanted

    def _check_priority(self, priority: object) -> None:
        low, high = PRIORITY_RANGE
        if type(priority) is not int or not low <= priority <= high:
            message = f"priority must be a whole number of 64 bits, got {shown(priority)}"
            raise InvalidRequestError(message, param="priority")
        policy = self.limits.scheduler.scheduling_policy
        if priority != 0 and policy != "priority":
            raise InvalidRequestError(
                f"priority has no meaning under the policy {policy}, got {priority}; leave it out, "
                "or start the engine with --scheduling-policy priority",
                param="priority",
            )

    def _max_beam_tokens(
        self, params: SamplingParams, beam: BeamSpec, num_prompt_tokens: int, max_tokens: int
    ) -> int:
        """The limit of a beam search: what was asked for, or the rest of context and pool."""
        check_combination(params, beam)
        plan, scheduler = self.limits.kv_plan, self.limits.scheduler
        num_rows = min(scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
        if params.max_tokens is None:
            max_tokens = most_tokens_of_beams(plan, beam, num_prompt_tokens, max_tokens)
        check_beams_fit(plan, beam, num_rows, num_prompt_tokens, max_tokens)
        return max_tokens

    def _check_token_ids(self, params: SamplingParams) -> None:
        for name in ("stop_token_ids", "allowed_token_ids", "logit_bias", "logprob_token_ids"):
            ids: Iterable[int] = getattr(params, name) or ()
            if max(ids, default=0) >= self.limits.vocab_size:
                wrong = [token_id for token_id in ids if token_id >= self.limits.vocab_size]
                raise self._outside(name, *wrong)

    def _num_logprobs(self, name: str, wanted: int | None) -> int:
        """-1 for none, else how many of the best."""
        if wanted is None:
            return -1
        cap = self.limits.max_logprobs
        number = self.limits.vocab_size if wanted == -1 else wanted
        if cap != -1 and number > cap:
            raise InvalidRequestError(
                f"{name} may be at most {cap} (max_logprobs), got {shown(wanted)}", param=name
            )
        return min(number, self.limits.vocab_size)

    def _sampling(self, params: SamplingParams, seed: int, *, is_search: bool) -> SamplingSpec:
        """What the sampler has to do for the first choice."""
        limits = self.limits
        spec: dict[str, Any] = {
            "seed": seed,
            "repetition_penalty": params.repetition_penalty,
            "presence_penalty": params.presence_penalty,
            "frequency_penalty": params.frequency_penalty,
            "num_logprobs": self._num_logprobs("logprobs", params.logprobs),
            "num_prompt_logprobs": self._num_logprobs("prompt_logprobs", params.prompt_logprobs),
        }
        if not params.is_greedy:
            spec["temperature"] = max(params.temperature, LOWEST_TEMPERATURE)
            spec["top_k"] = params.top_k if 0 < params.top_k < limits.vocab_size else 0
            spec["top_p"] = params.top_p
            spec["min_p"] = params.min_p
        if params.logit_bias:
            spec["bias_token_ids"] = list(params.logit_bias)
            spec["bias_values"] = list(params.logit_bias.values())
        if params.logprob_token_ids:
            spec["num_logprobs"] = 0
            spec["logprob_token_ids"] = params.logprob_token_ids
        if params.allowed_token_ids:
            spec["allowed_token_ids"] = params.allowed_token_ids
        if params.bad_words:
            spec["bad_words"] = self._bad_words(params.bad_words)
        if params.min_tokens:
            spec["min_tokens"] = params.min_tokens
            ends = [*limits.eos_token_ids, *(params.stop_token_ids or ())]
            spec["stop_token_ids"] = list(dict.fromkeys(ends))
        if limits.logits_processors and not is_search:  # a search ranks by the model's own logits
            spec["processor_params"] = passed_params(params)
        made = SamplingSpec(**spec)
        _check_something_left(made)
        return made

    def _bad_words(self, words: Sequence[str]) -> list[list[int]]:
        """Token sequences of each word, at the start of a text and after a space."""
        sequences = {}
        for word in words:
            for form in (word, " " + word.lstrip()):
                ids = self._tokenizer.encode(form, add_special_tokens=False, param="bad_words")
                if ids:
                    sequences[tuple(ids)] = ids
        return list(sequences.values())


def _check_something_left(spec: SamplingSpec) -> None:
    """Refuse an allow-list of which other fields forbid every token."""
    if not spec.allowed_token_ids:
        return
    banned = {word[0] for word in spec.bad_words if len(word) == 1}
    if spec.min_tokens:
        banned.update(spec.stop_token_ids)
    if banned.issuperset(spec.allowed_token_ids):
        raise InvalidRequestError(
            "allowed_token_ids leaves no token to draw: bad_words, or the stop tokens that wait "
            "for min_tokens, forbid all of them",
            param="allowed_token_ids",
        )


def _fork_of(first: EngineRequest, request_id: str, choice: int) -> EngineRequest:
    """The request for another choice: the prompt, and its logprobs, are the first one's to make."""
    sampling = msgspec.structs.replace(
        first.sampling,
        seed=(first.sampling.seed + choice) & SEED_MASK,
        num_prompt_logprobs=-1,
    )
    return msgspec.structs.replace(
        first,
        request_id=f"{request_id}/{choice}",
        sampling=sampling,
        fork_of=first.request_id,
        skip_prefix_cache=False,
    )


def _checked_timeout(timeout: object) -> float:
    """Seconds above 0. Raises InvalidRequestError."""
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not is_number or not 0 < timeout <= LONGEST_TIMEOUT_S:  # type: ignore[operator]
        raise InvalidRequestError(
            f"timeout must be a number of seconds above 0 and at most {LONGEST_TIMEOUT_S:g}, "
            f"got {shown(timeout)}",
            param="timeout",
        )
    return float(timeout)  # type: ignore[arg-type]


def _parts_of(prompt: Any) -> tuple[str | None, Sequence[int] | None, str | None]:
    """(text, token ids, cache salt); one of the first two is there."""
    if isinstance(prompt, str):
        return prompt, None, None
    if isinstance(prompt, Mapping):
        return _parts_of_dict(prompt)
    if _is_list(prompt):
        return None, prompt, None
    raise InvalidRequestError(f"prompt must be {PROMPT_FORMS}, got {shown(prompt)}", param="prompt")


def _parts_of_dict(
    prompt: Mapping[str, Any],
) -> tuple[str | None, Sequence[int] | None, str | None]:
    for name in prompt:
        if name not in PROMPT_FIELDS:
            raise InvalidRequestError(
                f"prompt: {shown(name)} is not supported; a prompt may have "
                f"{', '.join(sorted(PROMPT_FIELDS))}",
                param="prompt",
            )
    text, token_ids, salt = (
        prompt.get("prompt"),
        prompt.get("prompt_token_ids"),
        prompt.get("cache_salt"),
    )
    if text is not None and not isinstance(text, str):
        raise InvalidRequestError(f"prompt must be a text, got {shown(text)}", param="prompt")
    if token_ids is not None and not _is_list(token_ids):
        message = f"prompt_token_ids must be a list of token ids, got {shown(token_ids)}"
        raise InvalidRequestError(message, param="prompt_token_ids")
    if text is None and token_ids is None:
        raise InvalidRequestError(f"prompt must be {PROMPT_FORMS}", param="prompt")
    if salt is not None and not (isinstance(salt, str) and salt):
        raise InvalidRequestError(
            f"cache_salt must be a non-empty text, got {shown(salt)}", param="cache_salt"
        )
    return text, token_ids, salt


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)


def _token_id(value: object) -> int:
    """An id that another library's integer holds; booleans, floats and texts are none."""
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        return int(value.__index__())
    raise InvalidRequestError(
        f"prompt: a token id must be a whole number, got {shown(value)}", param="prompt"
    )
