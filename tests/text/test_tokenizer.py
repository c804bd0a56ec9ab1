"""Tokenizers of model folders: special tokens, BOS and EOS, files that are missing or wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from octavo.errors import CorruptFileError, InvalidRequestError, ModelFileError
from octavo.text.spelling import CHARACTER_OF_BYTE
from octavo.text.tokenizer import LONG_TEXT, Tokenizer
from octavo.text.tokenizer_folder import tokenizer_from_folder
from tests.support.hard_strings import hard_strings

BOS, EOS = "<s>", "</s>"


def library(*, adds_bos: bool = False) -> tokenizers.Tokenizer:
    """Single bytes and two special tokens, ids 256 and 257."""
    built = tokenizers.Tokenizer(
        models.BPE(
            vocab={character: id_ for id_, character in enumerate(CHARACTER_OF_BYTE)}, merges=[]
        )
    )
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(BOS, normalized=False), AddedToken(EOS, normalized=False)])
    if adds_bos:
        built.post_processor = processors.TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, 256)]
        )
    return built


def folder(path: Path, built: tokenizers.Tokenizer | None = None, **files: Any) -> Path:
    """A model folder; `config` and `special_map` and `added` are written where given."""
    (built or library()).save(str(path / "tokenizer.json"))
    names = {
        "config": "tokenizer_config.json",
        "special_map": "special_tokens_map.json",
        "added": "added_tokens.json",
    }
    for key, content in files.items():
        (path / names[key]).write_text(json.dumps(content), encoding="utf-8")
    return path


def opened(path: Path, built: tokenizers.Tokenizer | None = None, **files: Any) -> Tokenizer:
    return tokenizer_from_folder(folder(path, built, **files))


def test_hard_strings_come_back_from_a_folder_tokenizer(tmp_path: Path) -> None:
    """Every byte has a token."""
    tokenizer = opened(tmp_path)
    for text in hard_strings(500):
        ids = tokenizer.encode(text)
        assert text == tokenizer.decode(ids, skip_special_tokens=False)
        assert text.encode() == b"".join(map(tokenizer.token_bytes, ids))


def test_tokens_of_single_bytes_have_exactly_that_byte(tmp_path: Path) -> None:
    """Also those that are no character on their own."""
    tokenizer = opened(tmp_path)
    assert [bytes([byte]) for byte in range(256)] == list(map(tokenizer.token_bytes, range(256)))
    assert tokenizer.token_of(0x80) == "\ufffd"
    assert (tokenizer.token_of(256), tokenizer.token_bytes(256)) == (BOS, b"<s>")


def test_tokens_that_do_not_exist_are_empty(tmp_path: Path) -> None:
    """A model pads its vocabulary; nobody may stumble over that."""
    tokenizer = opened(tmp_path)
    assert tokenizer.vocab_size == 258
    assert (
        tokenizer.token_bytes(258),
        tokenizer.token_of(10**9),
        tokenizer.token_bytes(-1),
    ) == (b"", "", b"")
    assert tokenizer.id_of("nothing") is None


def test_half_a_surrogate_pair_is_refused_by_its_place(tmp_path: Path) -> None:
    """JSON can carry it, UTF-8 cannot."""
    tokenizer = opened(tmp_path)
    with pytest.raises(InvalidRequestError, match=r"U\+D83D\) at character 2") as caught:
        tokenizer.encode("ab\ud83d", param="messages")
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    ("adds_bos", "config", "begin", "end"),
    [
        (False, {}, [], []),
        (True, {}, [256], []),
        (True, {"add_bos_token": False}, [256], []),
        (False, {"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True}, [256], []),
        (True, {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False}, [], []),
        (True, {"tokenizer_class": "GemmaTokenizer", "add_eos_token": True}, [], [257]),
        (True, {"tokenizer_class": "LlamaTokenizer"}, [256], []),
        (False, {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": True}, [], []),
    ],
)
def test_bos_and_eos_follow_the_class_or_the_post_processor(
    tmp_path: Path, adds_bos: bool, config: dict[str, Any], begin: list[int], end: list[int]
) -> None:
    """Only some classes read the flags; elsewhere tokenizer.json has the last word."""
    named = {"bos_token": BOS, "eos_token": EOS}
    tokenizer = opened(tmp_path, library(adds_bos=adds_bos), config={**named, **config})
    assert [*begin, *b"Hi", *end] == [
        id_ if id_ > 255 else tokenizer.token_bytes(id_)[0] for id_ in tokenizer.encode("Hi")
    ]
    assert (
        b"".join(map(tokenizer.token_bytes, tokenizer.encode("Hi", add_special_tokens=False)))
        == b"Hi"
    )


def test_named_tokens_may_be_texts_or_objects(tmp_path: Path) -> None:
    """Both forms are in the wild; a null is none."""
    config = {"bos_token": {"content": BOS, "lstrip": False}, "eos_token": EOS, "pad_token": None}
    tokenizer = opened(tmp_path, config=config)
    assert tokenizer.special_tokens == {"bos_token": BOS, "eos_token": EOS}
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (256, 257)
    assert tokenizer.pad_token is None
    assert tokenizer.unk_token is None


def test_a_named_token_that_has_no_id_is_none(tmp_path: Path) -> None:
    """Giving it a new id would reach beyond the model's embedding."""
    tokenizer = opened(tmp_path, config={"pad_token": "[PAD]", "bos_token": BOS})
    assert tokenizer.special_tokens == {"bos_token": BOS}
    assert tokenizer.vocab_size == 258


def test_the_special_tokens_map_fills_in_and_wins_over_an_old_configuration(tmp_path: Path) -> None:
    """A configuration that lists the added tokens is newer than the map."""
    special_map = {"bos_token": EOS, "eos_token": EOS}
    old = opened(tmp_path, config={"bos_token": BOS}, special_map=special_map)
    assert old.special_tokens == {"bos_token": EOS, "eos_token": EOS}
    new = opened(
        tmp_path,
        config={"bos_token": BOS, "added_tokens_decoder": {}},
        special_map=special_map,
    )
    assert new.special_tokens == {"bos_token": BOS, "eos_token": EOS}


def test_tokens_that_only_the_configuration_lists_are_added_under_their_ids(tmp_path: Path) -> None:
    """Recognised whole, shown or skipped as their entry says."""
    listed = {
        "258": {"content": "<tool>", "special": False, "normalized": False},
        "259": {"content": "<turn>", "special": True, "normalized": False},
    }
    tokenizer = opened(tmp_path, config={"added_tokens_decoder": listed})
    assert tokenizer.encode("<tool><turn>") == [258, 259]
    assert tokenizer.decode([258, 259]) == "<tool>"
    assert tokenizer.vocab_size == 260


def test_added_tokens_json_gives_ids_where_the_configuration_does_not(tmp_path: Path) -> None:
    """The older form; special is what another file calls so."""
    tokenizer = opened(
        tmp_path,
        added={"<tool>": 258, "<turn>": 259},
        special_map={"additional_special_tokens": ["<turn>"]},
    )
    assert tokenizer.encode("<tool><turn>") == [258, 259]
    assert tokenizer.decode([258, 259]) == "<tool>"


def test_further_special_tokens_are_skipped(tmp_path: Path) -> None:
    """additional_special_tokens, or its newer name."""
    built = library()
    built.add_tokens([AddedToken("<a>", normalized=False), AddedToken("<b>", normalized=False)])
    config = {"additional_special_tokens": ["<a>"], "extra_special_tokens": {"b_token": "<b>"}}
    tokenizer = opened(tmp_path, built, config=config)
    assert tokenizer.decode(tokenizer.encode("<a>x<b>")) == "x"


def test_an_added_token_in_another_script_is_text_of_its_own(tmp_path: Path) -> None:
    """Byte-level spelling is for ordinary tokens: `é` is not the byte E9."""
    built = library()
    built.add_tokens(
        [AddedToken("<é>", normalized=False), AddedToken("<｜x▁y｜>", normalized=False)]
    )
    tokenizer = opened(tmp_path, built)
    for token in ("<é>", "<｜x▁y｜>"):
        assert token == tokenizer.decode(tokenizer.encode(token))


def test_truncation_and_padding_of_the_file_are_switched_off(tmp_path: Path) -> None:
    """A prompt is never cut in silence."""
    built = library()
    built.enable_truncation(4)
    built.enable_padding(length=8)
    assert len(opened(tmp_path, built).encode("abcdef")) == 6


def test_a_vocabulary_with_gaps_ends_at_its_highest_id(tmp_path: Path) -> None:
    """Ids are what counts, not how many there are."""
    built = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 7}, unk_token="a"))
    tokenizer = opened(tmp_path, built)
    assert tokenizer.vocab_size == 8
    assert (tokenizer.token_of(7), tokenizer.token_of(3)) == ("b", "")


def test_a_folder_without_a_vocabulary_is_refused_by_the_names_of_the_files(
    tmp_path: Path,
) -> None:
    """All of them."""
    with pytest.raises(ModelFileError, match=r"none of tokenizer\.json, tekken\.json"):
        tokenizer_from_folder(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "not json"),
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", "[]"),
        ("special_tokens_map.json", "3"),
        ("added_tokens.json", '{"<a>": "x"}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"1": 5}}'),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"one": {"content": "a"}}}'),
    ],
)
def test_a_malformed_file_is_corrupt_and_named(tmp_path: Path, name: str, content: str) -> None:
    """Model files come from strangers."""
    folder(tmp_path)
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(CorruptFileError, match=name):
        tokenizer_from_folder(tmp_path)


def test_ids_that_contradict_each_other_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """tokenizer.json wins: its ids are those of the embedding."""
    listed = {"5": {"content": BOS, "special": True}}
    tokenizer = opened(tmp_path, config={"added_tokens_decoder": listed})
    assert tokenizer.id_of(BOS) == 256
    assert "other files say 5" in caplog.text


def test_no_special_tokens_means_none_whatever_the_post_processor_adds(tmp_path: Path) -> None:
    """Rendered chats have all of theirs."""
    tokenizer = opened(tmp_path, library(adds_bos=True))
    assert tokenizer.encode("") == [256]
    assert tokenizer.encode("", add_special_tokens=False) == []


@pytest.mark.parametrize("adds", [False, True])
def test_a_long_text_has_the_ids_that_its_library_gives(tmp_path: Path, adds: bool) -> None:
    """The way that lets other threads run gives the same ids, and the same refusal."""
    built = library(adds_bos=True)
    tokenizer = tokenizer_from_folder(folder(tmp_path, built))
    text = "".join(hard_strings()).encode("utf-8", "ignore").decode() + "word " * LONG_TEXT

    ids = tokenizer.encode(text, add_special_tokens=adds)

    assert ids == built.encode(text, add_special_tokens=adds).ids
    with pytest.raises(InvalidRequestError, match="surrogate"):
        tokenizer.encode(text + "\ud800")
