"""Pieces of text given out token by token join to the text of the whole answer."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from octavo.text.detokenizer import IncrementalDetokenizer
from octavo.text.gguf_library import byte_level
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.gguf_vocabulary import GgufVocabulary
from octavo.text.pre_tokenizers import word_rule
from octavo.text.tokenizer import Tokenizer
from tests.support.hard_strings import hard_strings
from tests.text.test_gguf_tokenizer import sentencepiece_metadata

ANSWERS = hard_strings(400, ["<|im_end|>", "<|im_start|>"])


def streamed(
    tokenizer: Tokenizer, ids: list[int], prompt: tuple[int, ...] = (), skip: bool = True
) -> list[str]:
    """The pieces of an answer, what is flushed last."""
    detokenizer = IncrementalDetokenizer(tokenizer, prompt, skip_special_tokens=skip)
    return [*map(detokenizer.push, ids), detokenizer.flush()]


@pytest.fixture(scope="module")
def llama() -> Tokenizer:
    """SentencePiece with a prefix space, which is stripped from the beginning of a text."""
    return tokenizer_from_gguf(sentencepiece_metadata())


@pytest.fixture(scope="module")
def word_piece() -> Tokenizer:
    """A decoder that only the library knows: it puts spaces between words."""
    words = ["[UNK]", "[CLS]", "[SEP]", "the", "fox", "##es", "jump", "##ed", ",", "."]
    library = tokenizers.Tokenizer(
        models.WordPiece({word: id_ for id_, word in enumerate(words)}, unk_token="[UNK]")
    )
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece()
    library.add_special_tokens(["[CLS]", "[SEP]"])
    return Tokenizer(library, named_tokens={}, special_ids=[1, 2])


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
@pytest.mark.parametrize("skip", [True, False])
def test_pieces_of_hard_strings_join_to_the_whole(
    name: str, skip: bool, request: pytest.FixtureRequest
) -> None:
    """And no piece has a U+FFFD that the text has not."""
    tokenizer: Tokenizer = request.getfixturevalue(name)
    for text in ANSWERS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        pieces = streamed(tokenizer, ids, skip=skip)
        assert tokenizer.decode(ids, skip_special_tokens=skip) == "".join(pieces)


@pytest.mark.parametrize("name", ["smollm2", "gemma3", "llama"])
def test_pieces_of_random_tokens_join_to_the_whole(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Random answers are mostly broken characters."""
    tokenizer: Tokenizer = request.getfixturevalue(name)
    source = Random(5)
    for _ in range(300):
        ids = [source.randrange(min(600, tokenizer.vocab_size)) for _ in range(25)]
        ids += [source.randrange(tokenizer.vocab_size) for _ in range(5)]
        for skip in (True, False):
            expected = tokenizer.decode(ids, skip_special_tokens=skip)
            assert expected == "".join(streamed(tokenizer, ids, skip=skip))


def test_the_library_decodes_random_byte_level_tokens_alike(
    smollm2: Tokenizer, smollm2_metadata: Mapping[str, object]
) -> None:
    """An independent decoder: U+FFFD stands for the same bytes."""
    library = byte_level(GgufVocabulary(smollm2_metadata), word_rule("smollm"))
    source = Random(6)
    for _ in range(300):
        ids = [source.randrange(smollm2.vocab_size) for _ in range(30)]
        assert library.decode(ids) == "".join(streamed(smollm2, ids))


@settings(deadline=None)
@given(st.text(alphabet="ab é東🙂🧪\n", max_size=30), st.integers(0, 60))
def test_a_character_cut_between_prompt_and_answer_comes_out_whole(
    smollm2: Tokenizer, text: str, place: int
) -> None:
    """The prompt's bytes go on: together they are the text after the last whole character."""
    ids = smollm2.encode("🙂" + text + "🧪")
    place %= len(ids) + 1
    given_out = "".join(streamed(smollm2, ids[place:], tuple(ids[:place])))
    whole = smollm2.decode(ids)
    before = smollm2.decode(ids[:place]).rstrip("\ufffd")
    assert whole == before + given_out


def test_a_letter_is_held_back_until_it_is_whole(smollm2: Tokenizer) -> None:
    """No U+FFFD in the middle of a stream."""
    ids = smollm2.encode("🧪")
    pieces = streamed(smollm2, ids)
    assert [""] * (len(ids) - 1) + ["🧪", ""] == pieces


def test_a_letter_cut_by_the_end_is_one_replacement_character(smollm2: Tokenizer) -> None:
    """As in the text of the whole answer."""
    ids = smollm2.encode("a🧪")[:-1]
    assert ["a", "", "", "\ufffd"][-len(ids) - 1 :] == streamed(smollm2, ids)
    assert smollm2.decode(ids) == "a\ufffd"


def test_the_space_of_the_first_token_is_kept_when_the_prompt_has_text(llama: Tokenizer) -> None:
    """The prompt ended a word; the answer begins the next."""
    prompt = tuple(llama.encode("ab"))
    word = llama.id_of("\u2581ab")
    assert word is not None
    assert streamed(llama, [word], prompt) == [" ab", ""]


def test_the_first_space_is_stripped_when_the_prompt_is_empty_text(llama: Tokenizer) -> None:
    """A prompt of BOS alone: the answer is a text of its own."""
    word = llama.id_of("\u2581ab")
    assert word is not None
    assert streamed(llama, [word, word], (1,)) == ["ab", " ab", ""]
    assert streamed(llama, [word], (1,), skip=False) == [" ab", ""]


def test_special_tokens_are_skipped_or_shown(smollm2: Tokenizer) -> None:
    """By the request's wish."""
    ids = smollm2.encode("a<|im_end|>b")
    assert streamed(smollm2, ids) == ["a", "", "b", ""]
    assert streamed(smollm2, ids, skip=False) == ["a", "<|im_end|>", "b", ""]


def test_ids_that_do_not_exist_have_no_text(smollm2: Tokenizer) -> None:
    """A model may pad its vocabulary; such a token never raises."""
    assert streamed(smollm2, [smollm2.vocab_size + 7]) == ["", ""]
    assert smollm2.decode([smollm2.vocab_size + 7, -1]) == ""


def test_requests_with_and_without_special_tokens_share_one_vocabulary(smollm2: Tokenizer) -> None:
    """What one request learned about a token is right for the other."""
    end = smollm2.id_of("<|im_end|>")
    assert end is not None
    for _ in range(2):
        assert streamed(smollm2, [end], skip=False) == ["<|im_end|>", ""]
        assert streamed(smollm2, [end], skip=True) == ["", ""]


def test_other_decoders_are_asked_token_by_token(word_piece: Tokenizer) -> None:
    """Spaces depend on the token before: the library's stream knows."""
    ids = word_piece.encode("the foxes jumped , the fox .")
    assert word_piece.decode(ids) == "".join(streamed(word_piece, ids))
    prompt, answer = tuple(ids[:3]), ids[3:]
    assert word_piece.decode(ids) == word_piece.decode(ids[:3]) + "".join(
        streamed(word_piece, answer, prompt)
    )


def test_other_decoders_skip_special_tokens_and_unknown_ids(word_piece: Tokenizer) -> None:
    """Neither raises, neither has a text."""
    assert "".join(streamed(word_piece, [1, 3, 4, 2, 99999])) == "the fox"


def test_adjacent_special_tokens_are_joined_where_the_request_wants_no_spaces(
    word_piece: Tokenizer,
) -> None:
    """spaces_between_special_tokens, for the decoders that put spaces there."""
    apart = IncrementalDetokenizer(word_piece, skip_special_tokens=False)
    joined = IncrementalDetokenizer(
        word_piece, skip_special_tokens=False, spaces_between_special_tokens=False
    )
    ids = [3, 1, 2, 4]
    assert "".join(map(apart.push, ids)) == "the [CLS] [SEP] fox"
    assert "".join(map(joined.push, ids)) == "the [CLS][SEP] fox"
