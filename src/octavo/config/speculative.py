"""The value of --speculative-config: JSON with vLLM's names and defaults, checked.

Owns names, ranges and defaults. Does not know how drafts are found or checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import msgspec

from octavo.config.json_option import typed_option
from octavo.errors import ConfigError

_FLAG = "--speculative-config"
_EXAMPLE = '{"method": "ngram", "num_speculative_tokens": 4}'
_METHOD = "ngram"
_OLD_NAMES = ("ngram", "[ngram]")  # vLLM's names of the method in the place of a draft model
_DEFAULT_LOOKUP = 5  # tokens, as in vLLM

SHORT_FORMS: Mapping[str, str] = {
    "spec_method": "method",
    "spec_model": "model",
    "spec_tokens": "num_speculative_tokens",
}
"""vLLM's options for a part of the object alone -> the key in it."""

Count = Annotated[int, msgspec.Meta(ge=1, le=64)]


class _Given(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the object may hold."""

    method: str | None = None
    model: str | None = None
    num_speculative_tokens: Count | None = None
    prompt_lookup_max: Count | None = None
    prompt_lookup_min: Count | None = None


class LookupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts are what followed the last tokens where these stood before."""

    num_drafts: int  # most of one request in one step, at least 1
    longest: int  # tokens that are looked for first
    shortest: int  # and if they were nowhere, fewer and fewer of them down to so many


def parse_speculative(text: str | None) -> LookupConfig | None:
    """The flag's value; None without one.

    Raises ConfigError naming the flag, the field and what would be right.
    """
    if text is None:
        return None
    given = typed_option(_FLAG, text, _Given, _EXAMPLE)
    _check_method(given)
    if given.num_speculative_tokens is None:
        raise ConfigError(f"{_FLAG}: num_speculative_tokens is missing; write {_EXAMPLE}")
    longest = given.prompt_lookup_max or given.prompt_lookup_min or _DEFAULT_LOOKUP
    shortest = given.prompt_lookup_min or longest
    if shortest > longest:
        raise ConfigError(
            f"{_FLAG}: prompt_lookup_min is {shortest}, more than prompt_lookup_max, {longest}"
        )
    return LookupConfig(num_drafts=given.num_speculative_tokens, longest=longest, shortest=shortest)


def join_short_forms(given: Mapping[str, object]) -> str | None:
    """The option's text, from values of SHORT_FORMS by name; None if all are None."""
    parts = {key: given.get(name) for name, key in SHORT_FORMS.items()}
    parts = {key: value for key, value in parts.items() if value is not None}
    return json.dumps(parts) if parts else None


def _check_method(given: _Given) -> None:
    if given.method is None and given.model in _OLD_NAMES:
        return
    if given.method is None:
        raise ConfigError(
            f"{_FLAG}: method is missing; the only one is {_METHOD}, which needs no other model"
        )
    if given.method != _METHOD:
        raise ConfigError(
            f"{_FLAG}: method {given.method[:60]!r} is not supported; only {_METHOD} is, which "
            "needs no other model"
        )
    if given.model is not None and given.model not in _OLD_NAMES:
        raise ConfigError(
            f"{_FLAG}: method {_METHOD} uses no draft model; leave out model, got "
            f"{given.model[:60]!r}"
        )
