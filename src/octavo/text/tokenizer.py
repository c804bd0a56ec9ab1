"""Tokenizer: text -> token ids and back, the same for every model.

Owns the rules around the `tokenizers` library: which tokens are special, what is put before and
after a text, what a token id stands for. Does not know: files (`tokenizer_files.py`,
`gguf_tokenizer.py`), streams (`detokenizer.py`), prompts.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

import msgspec

from octavo.errors import InvalidRequestError
from octavo.text.library import Library
from octavo.text.spelling import SPELLED, Spelling, spelling_of_decoder
from octavo.text.stretches import STRETCH, stretches
from octavo.text.vocabulary import Vocabulary

# Characters from which on a text takes longer than handing it to the library as a batch of one.
LONG_TEXT = 4096
_JOINED_AT_ONCE = 2**14  # parts of a text, during which no other thread runs


class Frame(msgspec.Struct, frozen=True):
    """Ids put before and after a text whose special tokens are wanted."""

    begin: tuple[int, ...] = ()
    end: tuple[int, ...] = ()


class Tokenizer:
    """Text -> ids -> text. Immutable once built; threads share it.

    Special tokens that are written out in a text are recognised, as in vLLM.
    """

    def __init__(
        self,
        library: Library,
        *,
        named_tokens: Mapping[str, str],
        special_ids: Collection[int],
        frame: Frame | None = None,
    ) -> None:
        """`frame` of None: the library's own post-processor puts tokens around a text."""
        self.library = library
        self.special_tokens = dict(named_tokens)  # "bos_token" -> "<s>", as chat templates want it
        self._frame = frame
        self.spelling, self.strips_first_space = _spelling(library)
        added = {id_: token.content for id_, token in library.get_added_tokens_decoder().items()}
        self.vocab_size = _vocab_size(library, added)
        special = {id_ for id_ in special_ids if id_ < self.vocab_size}
        self.vocabulary = Vocabulary(
            self.vocab_size, _ByteReader(library, self.spelling, added).token_bytes, special
        )

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that `skip_special_tokens` leaves out."""
        return self.vocabulary.special_ids

    def encode(
        self,
        text: str,
        *,
        add_special_tokens: bool = True,
        param: str = "prompt",
        enough: int | None = None,
    ) -> list[int]:
        """Token ids of a text; BOS and EOS are added where the model's own rules say so.

        Other threads run while a long text is encoded: the library lets go of the GIL for batches
        only. A text of more than `STRETCH` characters is left off once there are more than `enough`
        ids. Raises InvalidRequestError, naming `param`, for text that no UTF-8 can carry.
        """
        frame = self._frame if add_special_tokens else Frame()
        if len(text) > STRETCH:
            ids: list[int] = []
            for some in self.encode_by_stretch(text, add_special_tokens, param=param):
                ids += some
                if enough is not None and len(ids) > enough:
                    break
            return ids
        ids = self._encoding(text, frame is None, param).ids
        return ids if frame is None else [*frame.begin, *ids, *frame.end]

    def encode_by_stretch(
        self, text: str, add_special_tokens: bool = True, *, param: str = "prompt"
    ) -> Iterator[list[int]]:
        """The same ids, a bounded number at a time, so that none are kept that nobody wants."""
        frame = self._whole_frame() if add_special_tokens else Frame()
        yield [*frame.begin]
        for ids, _ in self._stretches(text, param):
            yield ids
        yield [*frame.end]

    def encode_last(
        self, text: str, num_tokens: int, *, add_special_tokens: bool = True, param: str = "prompt"
    ) -> list[int]:
        """The last ids of a text, special tokens among them."""
        last: list[int] = []
        for some in self.encode_by_stretch(text, add_special_tokens, param=param):
            last = [*last, *some][-num_tokens:]
        return last

    def _stretches(self, text: str, param: str) -> Iterator[tuple[list[int], int]]:
        return stretches(text, lambda part: self._encoding(part, False, param).ids)

    def _whole_frame(self) -> Frame:
        """What is put around a text, whoever does it."""
        if self._frame is not None:
            return self._frame
        bare, framed = (self._encoding("a", adds, "prompt").ids for adds in (False, True))
        begin = next(
            place
            for place in range(len(framed) - len(bare) + 1)
            if framed[place : place + len(bare)] == bare
        )
        return Frame(tuple(framed[:begin]), tuple(framed[begin + len(bare) :]))

    def _beginning(self, text: str, num_tokens: int, param: str) -> str:
        """As much of a text as has the first `num_tokens` tokens of it, and not much more."""
        if len(text) <= STRETCH:
            return text
        num_found = 0
        for ids, place in self._stretches(text, param):
            num_found += len(ids)
            if num_found >= num_tokens:
                return text[:place]
        return text

    def encode_cut(self, text: str, max_tokens: int, *, param: str = "prompt") -> list[int]:
        """The same for the beginning of a text that fits, with its special tokens, `max_tokens`."""
        text = self._beginning(text, max_tokens, param)
        encoding, frame = self._encoding(text, False, param), self._frame
        if frame is None:
            library: Any = self.library
            encoding.truncate(max(0, max_tokens - library.num_special_tokens_to_add(is_pair=False)))
            framed: list[int] = library.post_process(encoding).ids
            return framed
        room = max(0, max_tokens - len(frame.begin) - len(frame.end))
        return [*frame.begin, *encoding.ids[:room], *frame.end]

    def encode_pair(
        self,
        first: str,
        second: str,
        *,
        max_tokens: int | None = None,
        param: str = "prompt",
    ) -> tuple[list[int], int]:
        """Two texts in one sequence, and the place of the first token that belongs to the second.

        That place is by the segments of the tokenizer's rules, -1 where they have none. Of a pair
        that is too long the second text is cut first.
        """
        if max_tokens is not None:
            first, second = (self._beginning(one, max_tokens, param) for one in (first, second))
        head, tail = self._encoding(first, False, param), self._encoding(second, False, param)
        frame, library = self._frame, cast(Any, self.library)
        num_special = (
            library.num_special_tokens_to_add(is_pair=True)
            if frame is None
            else len(frame.begin) + len(frame.end)
        )
        room = max(0, (sys.maxsize if max_tokens is None else max_tokens) - num_special)
        num_first = min(len(head.ids), room)
        num_second = min(len(tail.ids), room - num_first)
        if frame is not None:
            return [*frame.begin, *head.ids[:num_first], *tail.ids[:num_second], *frame.end], -1
        head.truncate(num_first)
        tail.truncate(num_second)
        joined = library.post_process(head, tail)
        segments: list[int] = joined.type_ids
        return joined.ids, segments.index(1) if 1 in segments else -1

    def beginning(self, text: str, max_tokens: int) -> str:
        """The beginning of a text that `max_tokens` tokens stand for, special ones aside."""
        text = self._beginning(text, max_tokens + 1, "prompt")
        ids = self.encode(text, add_special_tokens=False)
        if len(ids) <= max_tokens:
            return text
        library: Any = self.library
        if not hasattr(library, "encode_batch"):
            return self.decode(ids[:max_tokens], skip_special_tokens=False)
        [encoding] = library.encode_batch([text], add_special_tokens=False)
        end: int = encoding.offsets[max_tokens - 1][1]
        return text[:end]

    def _encoding(self, text: str, adds: bool, param: str) -> Any:
        try:
            if len(text) < LONG_TEXT:
                return self.library.encode(text, add_special_tokens=adds)
            [encoding] = self.library.encode_batch_fast([text], add_special_tokens=adds)
        except TypeError as error:  # what the library makes of a lone surrogate
            raise InvalidRequestError(_surrogate_message(text, param), param=param) from error
        return encoding

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """Text of a whole sequence. Ids that do not exist (padding of the model) are empty."""
        if self.spelling is Spelling.OTHER:
            known = [id_ for id_ in ids if 0 <= id_ < self.vocab_size]
            return self._decode_by_library(known, skip_special_tokens=skip_special_tokens)
        if skip_special_tokens:
            special = self.special_ids
            ids = (id_ for id_ in ids if id_ not in special)
        raw = _joined(map(self.vocabulary.token_bytes, ids))
        if self.strips_first_space:
            raw = raw.removeprefix(b" ")
        return raw.decode("utf-8", "replace")

    def _decode_by_library(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        """For decoders that only the `tokenizers` library knows."""
        library: Any = self.library
        text: str = library.decode(ids, skip_special_tokens=skip_special_tokens)
        return text

    def token_of(self, token_id: int) -> str:
        """One token for display, a special one as it is written."""
        return self.vocabulary.token_text(token_id)

    def piece_of(self, token_id: int) -> str:
        """One token as the vocabulary spells it, such as `Ġis`; empty for an id that is none."""
        return self.library.id_to_token(token_id) or ""

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes that a token adds to a text; of a special one its name."""
        return self.vocabulary.token_bytes(token_id)

    def id_of(self, token: str) -> int | None:
        """The id of a token by its text in the vocabulary, None where there is none."""
        return self.library.token_to_id(token)

    @property
    def bos_token(self) -> str | None:
        return self.special_tokens.get("bos_token")

    @property
    def eos_token(self) -> str | None:
        return self.special_tokens.get("eos_token")

    @property
    def pad_token(self) -> str | None:
        return self.special_tokens.get("pad_token")

    @property
    def unk_token(self) -> str | None:
        return self.special_tokens.get("unk_token")

    @property
    def bos_token_id(self) -> int | None:
        return self._id_of_named("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        return self._id_of_named("eos_token")

    def _id_of_named(self, name: str) -> int | None:
        token = self.special_tokens.get(name)
        return None if token is None else self.id_of(token)


class _ByteReader:
    """Looks up one token in the library and spells it out."""

    def __init__(self, library: Library, spelling: Spelling, added: Mapping[int, str]) -> None:
        self._library = library
        self._spelling = spelling
        self._added = added

    def token_bytes(self, token_id: int) -> bytes:
        if self._spelling is Spelling.OTHER:
            library: Any = self._library
            text: str = library.decode([token_id], skip_special_tokens=False)
            return text.encode()
        # Added tokens of a byte-level vocabulary are written as they are, not in the byte alphabet.
        if self._spelling is Spelling.BYTE_LEVEL and token_id in self._added:
            return self._added[token_id].encode()
        token = self._library.id_to_token(token_id)
        return b"" if token is None else SPELLED[self._spelling](token)


def _spelling(library: Library) -> tuple[Spelling, bool]:
    if library.decoder is None:
        return Spelling.OTHER, False
    return spelling_of_decoder(library.decoder.__getstate__())


def _vocab_size(library: Library, added: Mapping[int, str]) -> int:
    """One more than the highest id. Counting tokens is enough unless ids have been left out."""
    size = max(library.get_vocab_size(with_added_tokens=False), max(added, default=-1) + 1)
    if size and library.id_to_token(size - 1) is not None and library.id_to_token(size) is None:
        return size
    return max(library.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def _surrogate_message(text: Sequence[str], param: str) -> str:
    for position, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            return (
                f"{param} has half of a surrogate pair (U+{ord(character):04X}) at character "
                f"{position}, which is no text; send the whole character"
            )
    raise AssertionError("the library refused a text without surrogates")


def _joined(parts: Iterator[bytes]) -> bytes:
    """All parts as one, without holding up other threads for long."""
    joined = []
    while some := list(islice(parts, _JOINED_AT_ONCE)):
        joined.append(b"".join(some))
    return b"".join(joined)
