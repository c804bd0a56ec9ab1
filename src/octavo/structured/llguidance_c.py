"""llguidance through the C interface of its library, by ctypes.

Owns the layout of its structures and the life of its objects. Every call lets other threads run,
which its Python module does not do while it sorts a vocabulary: a second for 262,144 tokens, in
which a server would answer nobody. The interface is that of llguidance.h; structures are checked
against the defaults that the library itself writes into them before anything is trusted to them.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    byref,
    c_bool,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from functools import cache, lru_cache
from typing import Any, Protocol
from weakref import finalize

import llguidance

from octavo.contracts.grammar import MaskSource

_SPECIAL_MARK = b"\xff"  # in front of tokens that no text spells; no UTF-8 has it
_NO_TOKEN = 0xFFFFFFFF
_NONE = -1  # in a MaskSource
_KEPT_TEXTS = 4096
_MAX_KEPT_BYTES = 200  # of a text
_MESSAGE_BYTES = 4096
_INIT_ROOM = 1024  # a newer library may write a longer structure


class UnknownLayoutError(Exception):
    """The library's C interface is missing or is not the one that we know."""


class _Limits(Structure):
    _fields_ = (
        ("max_items_in_row", c_size_t),
        ("initial_lexer_fuel", c_uint64),
        ("step_lexer_fuel", c_uint64),
        ("step_max_items", c_size_t),
        ("max_lexer_states", c_size_t),
        ("max_grammar_size", c_size_t),
        ("precompute_large_lexemes", c_bool),
        ("verbose_errors", c_bool),
    )


class _ConstraintInit(Structure):
    _fields_ = (
        ("tokenizer", c_void_p),
        ("log_buffer_level", c_uint32),
        ("log_stderr_level", c_uint32),
        ("ff_tokens_ok", c_bool),
        ("backtrack_ok", c_bool),
        ("limits", _Limits),
    )


_Tokenize = CFUNCTYPE(c_size_t, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t)


class _TokenizerInit(Structure):
    _fields_ = (
        ("struct_size", c_size_t),
        ("vocab_size", c_uint32),
        ("tok_eos", c_uint32),
        ("token_lens", c_void_p),
        ("token_bytes", c_char_p),
        ("tokenizer_json", c_char_p),
        ("tokenize_assumes_string", c_bool),
        ("tokenize_fn", _Tokenize),
        ("use_approximate_greedy_tokenize_fn", c_bool),
        ("tokenize_user_data", c_void_p),
        ("slices", c_void_p),
        ("tok_eos_extra", c_void_p),
        ("tok_eos_extra_count", c_uint32),
    )


class Tokens(Protocol):
    """See `automata.TokenTable`."""

    @property
    def token_bytes(self) -> Sequence[bytes]: ...
    @property
    def special_ids(self) -> frozenset[int]: ...
    @property
    def eos_token_ids(self) -> tuple[int, ...]: ...
    @property
    def encode(self) -> Callable[[str], list[int]]: ...


class CAutomata:
    """The `Automata` over one vocabulary. Safe from any thread."""

    def __init__(self, tokens: Tokens, max_grammar_size: int) -> None:
        """Raises UnknownLayoutError, ValueError for a vocabulary that the library refuses."""
        self._library = _library()
        self._max_grammar_size = max_grammar_size
        self._eos_token_ids = frozenset(tokens.eos_token_ids)
        self._ids_of = _ids_of_texts(tokens.encode)
        self._tokenize = _Tokenize(self._write_ids)  # the library calls it as long as we live
        self._address = self._open(tokens)
        _free_with(self, self._library.llg_free_tokenizer, self._address)

    def matcher(self, grammar: str) -> CMatcher:
        """See `Automata`."""
        init = self._library.defaults(self._address)
        init.log_stderr_level = 0
        init.limits.max_grammar_size = self._max_grammar_size
        init.limits.verbose_errors = False
        kind = b"guidance" if grammar.lstrip().startswith("{") else b"lark"
        if "\0" in grammar:
            grammar = grammar.replace("\0", "\\x00")  # a C string ends there
        source = grammar.encode("utf-8", "replace")
        address = self._library.llg_new_matcher(byref(init), kind, source)
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        status = self._library.llg_validate_grammar(
            byref(init), kind, source, message, _MESSAGE_BYTES
        )
        warnings = [message.value.decode("utf-8", "replace")] if status == 1 else []
        return CMatcher(self, address, warnings)

    def is_end(self, token: int) -> bool:
        """Whether a token ends an answer."""
        return token in self._eos_token_ids

    @property
    def library(self) -> Any:
        """The loaded functions."""
        return self._library

    def _open(self, tokens: Tokens) -> int:
        special = tokens.special_ids
        # No text spells an id without a token either; empty bytes would fit everywhere.
        raw = [
            token if token and id_ not in special else _SPECIAL_MARK + token
            for id_, token in enumerate(tokens.token_bytes)
        ]
        lengths = array("I", map(len, raw))
        extra = array("I", tokens.eos_token_ids[1:])
        init = _TokenizerInit(
            struct_size=ctypes.sizeof(_TokenizerInit),
            vocab_size=len(raw),
            tok_eos=(*tokens.eos_token_ids, _NO_TOKEN)[0],
            token_lens=lengths.buffer_info()[0],
            token_bytes=b"".join(raw),
            tokenize_assumes_string=True,
            tokenize_fn=self._tokenize,
            tok_eos_extra=extra.buffer_info()[0] if extra else None,
            tok_eos_extra_count=len(extra),
        )
        del raw
        message = ctypes.create_string_buffer(_MESSAGE_BYTES)
        address: int | None = self._library.llg_new_tokenizer_v2(
            byref(init), message, _MESSAGE_BYTES
        )
        if not address:
            raise ValueError(message.value.decode("utf-8", "replace"))
        return address

    def _write_ids(self, _: int, text: int, num_bytes: int, out: int, capacity: int) -> int:
        """The library's question for the ids of a text."""
        ids = self._ids_of(ctypes.string_at(text, num_bytes))
        written = min(len(ids), capacity)
        ctypes.memmove(out, ids.buffer_info()[0], written * ids.itemsize)
        return len(ids)


def _ids_of_texts(encode: Callable[[str], list[int]]) -> Callable[[bytes], array[int]]:
    """Ids of texts. What a grammar prescribes is short, and comes in every answer under it."""

    def ids_of(text: bytes) -> array[int]:
        return array("I", encode(text.decode()))

    kept = lru_cache(_KEPT_TEXTS)(ids_of)
    return lambda text: kept(text) if len(text) <= _MAX_KEPT_BYTES else ids_of(text)


class CMatcher:
    """The `Matcher` of the C interface. One thread at a time."""

    def __init__(self, automata: CAutomata, address: int, warnings: list[str]) -> None:
        self._automata = automata  # outlives us
        self._library = automata.library
        self._address = address
        self._warnings = warnings
        self._mask_bytes = self._library.llg_matcher_get_mask_byte_size(address)
        self._is_stopped: bool = self._library.llg_matcher_is_stopped(address)
        self._source = MaskSource(
            **self._library.addresses,
            state=address,
            num_bytes=self._mask_bytes,
            only=self._only_token(),
            told=_NONE,
        )
        self.source = ctypes.addressof(self._source)
        _free_with(self, self._library.llg_free_matcher, address)

    def is_error(self) -> bool:
        """See `Matcher`."""
        return bool(self._library.llg_matcher_is_error(self._address))

    def get_error(self) -> str:
        """See `Matcher`."""
        message: bytes | None = self._library.llg_matcher_get_error(self._address)
        return (message or b"").decode("utf-8", "replace")

    def get_grammar_warnings(self) -> list[str]:
        """See `Matcher`."""
        return self._warnings

    def compute_bitmask(self) -> bytes:
        """See `Matcher`."""
        mask = (c_uint8 * self._mask_bytes)()
        self._library.llg_matcher_compute_mask_into(self._address, mask, self._mask_bytes)
        return bytes(mask)

    def consume_token(self, token: int) -> bool:
        """See `Matcher`."""
        source = self._source
        if source.told != _NONE:  # whoever drew it has told it
            assert source.told == token, f"{source.told} was told instead of {token}"
            source.told = _NONE
            self._is_stopped = bool(source.has_ended)
            return bool(source.status == 0)
        if self._is_stopped and not self.is_error() and self._automata.is_end(token):
            return True
        status = self._library.llg_matcher_consume_token(self._address, token)
        self._is_stopped = self._library.llg_matcher_is_stopped(self._address)
        source.only = _NONE if self._is_stopped else self._only_token()
        return bool(status == 0)

    def is_stopped(self) -> bool:
        """See `Matcher`."""
        return self._is_stopped

    def _only_token(self) -> int:
        """The token that must come next: the text is certain, and this is how the tokenizer begins
        it. -1: others may come, or the end.
        """
        token = c_uint32()
        found = self._library.llg_matcher_compute_ff_tokens(self._address, byref(token), 1)
        return token.value if found > 0 else _NONE

    def deep_copy(self) -> CMatcher:
        """See `Matcher`."""
        copy = self._library.llg_clone_matcher(self._address)
        return CMatcher(self._automata, copy, self._warnings)


class _Library:
    """The functions that we use, with their types."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        for name, (result, *arguments) in _FUNCTIONS.items():
            try:
                function = getattr(library, name)
            except AttributeError:
                raise UnknownLayoutError(f"{path} has no {name}") from None
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)
        self.addresses = {
            field: ctypes.cast(getattr(library, name), c_void_p).value
            for field, name in _SOURCE_FUNCTIONS.items()
        }
        self._check_layout()

    def defaults(self, tokenizer: int | None) -> _ConstraintInit:
        """What the library starts a matcher with."""
        room = (c_uint8 * _INIT_ROOM)()
        self.llg_constraint_init_set_defaults(room, tokenizer)  # type: ignore[attr-defined]
        return _ConstraintInit.from_buffer(room)

    def _check_layout(self) -> None:
        init, known = self.defaults(0x1234), llguidance.LLParserLimits()
        fields = [name for name, _ in _Limits._fields_]
        as_read = {name: getattr(init.limits, name) for name in fields}
        if init.tokenizer != 0x1234 or as_read != {name: getattr(known, name) for name in fields}:
            raise UnknownLayoutError("its structures are not those of the known versions")


_MATCHER = c_void_p
_FUNCTIONS: dict[str, tuple[Any, ...]] = {  # name -> result, arguments
    "llg_constraint_init_set_defaults": (None, c_void_p, c_void_p),
    "llg_new_tokenizer_v2": (c_void_p, POINTER(_TokenizerInit), c_char_p, c_size_t),
    "llg_free_tokenizer": (None, c_void_p),
    "llg_new_matcher": (_MATCHER, POINTER(_ConstraintInit), c_char_p, c_char_p),
    "llg_validate_grammar": (
        c_int32,
        POINTER(_ConstraintInit),
        c_char_p,
        c_char_p,
        c_char_p,
        c_size_t,
    ),
    "llg_clone_matcher": (_MATCHER, _MATCHER),
    "llg_free_matcher": (None, _MATCHER),
    "llg_matcher_is_error": (c_bool, _MATCHER),
    "llg_matcher_get_error": (c_char_p, _MATCHER),
    "llg_matcher_get_mask_byte_size": (c_size_t, _MATCHER),
    "llg_matcher_compute_mask_into": (c_int32, _MATCHER, c_void_p, c_size_t),
    "llg_matcher_compute_ff_tokens": (c_int32, _MATCHER, c_void_p, c_size_t),
    "llg_matcher_validate_tokens": (c_int32, _MATCHER, c_void_p, c_size_t),
    "llg_matcher_consume_token": (c_int32, _MATCHER, c_uint32),
    "llg_matcher_is_stopped": (c_bool, _MATCHER),
}

_SOURCE_FUNCTIONS = {  # field of MaskSource -> name
    "fill": "llg_matcher_compute_mask_into",
    "count_fitting": "llg_matcher_validate_tokens",
    "consume": "llg_matcher_consume_token",
    "is_over": "llg_matcher_is_stopped",
    "find_only": "llg_matcher_compute_ff_tokens",
}


@cache
def _library() -> Any:
    return _Library(llguidance._lib.__file__)


def _free_with(owner: object, free: Callable[[int], None], address: int) -> None:
    """Free what the library made when nobody uses it any more; not when the process ends anyway."""
    finalize(owner, free, address).atexit = False
