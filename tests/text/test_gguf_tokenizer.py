"""Tokenizers built from GGUF metadata give the ids of the tokenizers they describe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from octavo.errors import CorruptFileError, UnsupportedModelError
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.gguf_vocabulary import TokenKind
from octavo.text.spelling import CHARACTER_OF_BYTE
from octavo.text.tokenizer import Tokenizer
from tests.support.data import reference
from tests.support.hard_strings import hard_strings
from tests.support.tokenizer_twins import ByteLevelTwin, SentencePieceTwin

KEY = "tokenizer.ggml."
REFERENCES = {"smollm2": "smollm2-135m-instruct-q4_1", "gemma3": "gemma-3-270m-q4_k_m"}
# What SmolLM2's own tokenizer.json says about words.
SMOLLM2_WORDS = pre_tokenizers.Sequence(
    [
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    ]
)


def byte_level_metadata(**changes: Any) -> dict[str, object]:
    """A vocabulary of all bytes, three merges and one control token."""
    tokens = [*CHARACTER_OF_BYTE, "he", "ll", "hell", "<end>", "<think>"]
    kinds = [TokenKind.NORMAL] * (len(tokens) - 2) + [TokenKind.CONTROL, TokenKind.USER_DEFINED]
    metadata: dict[str, object] = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": tokens,
        "token_type": [int(kind) for kind in kinds],
        "merges": ["h e", "l l", "he ll"],
        "eos_token_id": tokens.index("<end>"),
        "bos_token_id": tokens.index("<end>"),
    }
    metadata.update(changes)
    return {KEY + name: value for name, value in metadata.items() if value is not None}


def sentencepiece_metadata(**changes: Any) -> dict[str, object]:
    """Bytes, letters and words with scores."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [2, 3, 3] + [6] * 256
    scores = [0.0] * len(tokens)
    for score, token in enumerate(["\u2581", "a", "b", "c", "ab", "bc", "\u2581ab", "abc"]):
        tokens.append(token)
        kinds.append(1)
        scores.append(-float(score))
    metadata: dict[str, object] = {
        "model": "llama",
        "tokens": tokens,
        "token_type": kinds,
        "scores": scores,
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    metadata.update(changes)
    return {KEY + name: value for name, value in metadata.items() if value is not None}


def texts(tokenizer: Tokenizer, text: str) -> list[str]:
    """Tokens of a text by their names in the vocabulary, BOS and EOS left out."""
    ids = tokenizer.encode(text, add_special_tokens=False)
    return [tokenizer.library.id_to_token(id_) or "" for id_ in ids]


@pytest.mark.parametrize("name", list(REFERENCES))
def test_prompts_of_the_golden_outputs_have_their_recorded_ids(
    name: str, request: pytest.FixtureRequest
) -> None:
    """The recorded ids are transformers', made from the original tokenizer files."""
    tokenizer: Tokenizer = request.getfixturevalue(name)
    for entry in reference(REFERENCES[name])["entries"]:
        if "prompt" in entry:
            assert entry["prompt_token_ids"] == tokenizer.encode(entry["prompt"]), entry["prompt"]
        shown = tokenizer.decode(entry["output_token_ids"], skip_special_tokens=False)
        assert entry["text"] == shown


def test_smollm2_cuts_hard_strings_as_its_original_definition_does(
    smollm2: Tokenizer, smollm2_metadata: Mapping[str, Any]
) -> None:
    """The library with SmolLM2's own pre-tokenizers is the oracle for ids and for text."""
    merges = [tuple(merge.split(" ")) for merge in smollm2_metadata[KEY + "merges"]]
    vocabulary = {token: id_ for id_, token in enumerate(smollm2_metadata[KEY + "tokens"])}
    oracle = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    oracle.pre_tokenizer = SMOLLM2_WORDS
    oracle.decoder = decoders.ByteLevel()
    oracle.add_special_tokens(sorted(map(smollm2.token_of, smollm2.special_ids)))
    for text in hard_strings(1500, ["<|im_start|>", "<|im_end|>", "<repo_name>"]):
        ids = smollm2.encode(text)
        assert oracle.encode(text).ids == ids, text
        assert oracle.decode(ids) == smollm2.decode(ids)
        # Its vocabulary lacks a few control characters and first bytes of unassigned planes.
        if all(CHARACTER_OF_BYTE[byte] in vocabulary for byte in text.encode()):
            assert text == smollm2.decode(ids, skip_special_tokens=False)


def test_smollm2_agrees_with_a_slow_twin(
    smollm2: Tokenizer, smollm2_metadata: Mapping[str, object]
) -> None:
    """Byte-pair merging by its definition."""
    twin = ByteLevelTwin(smollm2_metadata, SMOLLM2_WORDS)
    for text in hard_strings(1500, ["<|im_start|>", "<file_sep>"]):
        assert twin.encode(text) == smollm2.encode(text), text


def test_gemma_agrees_with_a_slow_twin(
    gemma3: Tokenizer, gemma3_metadata: Mapping[str, object]
) -> None:
    """The twin merges by score, as llama.cpp does; the tokenizer by a list made from scores."""
    twin = SentencePieceTwin(gemma3_metadata)
    for text in hard_strings(1500, ["<bos>", "<end_of_turn>", "<table>", "[multimodal]", "\n\n"]):
        assert twin.encode(text) == gemma3.encode(text, add_special_tokens=False), text


def test_gemma_gives_every_text_back(gemma3: Tokenizer) -> None:
    """All but the sign that SentencePiece uses for the space."""
    for text in hard_strings(1500):
        ids = gemma3.encode(text, add_special_tokens=False)
        shown = gemma3.decode(ids, skip_special_tokens=False)
        assert text.replace("\u2581", " ") == shown


def test_gemma_puts_bos_before_a_text_only_where_special_tokens_are_wanted(
    gemma3: Tokenizer,
) -> None:
    """Rendered chats have their BOS already."""
    assert [2, *gemma3.encode("Hi", add_special_tokens=False)] == gemma3.encode("Hi")
    assert gemma3.decode(gemma3.encode("Hi")) == "Hi"


def test_special_tokens_in_a_text_are_recognised(smollm2: Tokenizer) -> None:
    """As in vLLM: a completion of a rendered chat has the chat's tokens."""
    ids = smollm2.encode("<|im_start|>user<|im_end|>")
    assert list(map(smollm2.token_of, ids)) == ["<|im_start|>", "user", "<|im_end|>"]


def test_merges_are_applied_in_order_and_control_tokens_stay_whole() -> None:
    """The smallest vocabulary that shows it."""
    tokenizer = tokenizer_from_gguf(byte_level_metadata())
    assert texts(tokenizer, "hello<end><think>he") == ["hell", "o", "<end>", "<think>", "he"]


def test_user_defined_tokens_are_text_and_control_tokens_are_special() -> None:
    """`<think>` is shown, `<end>` is skipped."""
    tokenizer = tokenizer_from_gguf(byte_level_metadata())
    assert tokenizer.decode(tokenizer.encode("<think>hell<end>")) == "<think>hell"
    assert frozenset({tokenizer.id_of("<end>")}) == tokenizer.special_ids


@pytest.mark.parametrize(
    ("changes", "begin", "end"),
    [
        ({}, 0, 0),
        ({"add_bos_token": True}, 1, 0),
        ({"add_bos_token": True, "add_eos_token": True}, 1, 1),
        ({"pre": "llama-bpe"}, 1, 0),
        ({"pre": "llama-bpe", "add_bos_token": False}, 0, 0),
        ({"add_bos_token": True, "bos_token_id": None}, 0, 0),
        ({"add_bos_token": True, "bos_token_id": 99999}, 0, 0),
    ],
)
def test_bos_and_eos_follow_the_file_or_the_habit_of_its_pre_tokenizer(
    changes: dict[str, Any], begin: int, end: int
) -> None:
    """Llama 3 adds BOS unless the file says no; an id outside the vocabulary is none."""
    tokenizer = tokenizer_from_gguf(byte_level_metadata(**changes))
    mark = tokenizer.id_of("<end>")
    bare = tokenizer.encode("he", add_special_tokens=False)
    assert [mark] * begin + bare + [mark] * end == tokenizer.encode("he")


def test_a_word_that_is_a_token_ignores_merges_where_the_rule_says_so() -> None:
    """Llama 3 keeps `ell`, which no merge leads to; GPT-2 cuts it."""
    tokens = [*CHARACTER_OF_BYTE, "ell", "<end>"]
    kinds = [1] * 257 + [3]
    changes: dict[str, Any] = {"tokens": tokens, "token_type": kinds, "merges": []}
    whole = tokenizer_from_gguf(byte_level_metadata(**changes, pre="llama-bpe"))
    cut = tokenizer_from_gguf(byte_level_metadata(**changes, pre="gpt-2"))
    assert texts(whole, "ell") == ["ell"]
    assert texts(cut, "ell") == ["e", "l", "l"]


def test_the_neighbours_with_the_best_score_are_merged_first() -> None:
    """`ab` has a better score than `bc`; `abc` is then made of `ab` and `c`."""
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata(add_space_prefix=False))
    assert texts(tokenizer, "abc") == ["abc"]
    assert texts(tokenizer, "bcab") == ["bc", "ab"]
    assert texts(tokenizer, " abc") == ["\u2581ab", "c"]


def test_unknown_characters_are_spelled_in_bytes() -> None:
    """And names of byte tokens in a text stay text."""
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata(add_space_prefix=False))
    assert texts(tokenizer, "é") == ["<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("<0x0A>", add_special_tokens=False)) == "<0x0A>"


def test_the_prefix_space_is_added_to_each_stretch_of_text_and_stripped_once() -> None:
    """Llama 2's rule: the text after a special token gets one, too."""
    tokenizer = tokenizer_from_gguf(sentencepiece_metadata())
    assert texts(tokenizer, "ab</s>ab") == ["\u2581ab", "</s>", "\u2581ab"]
    assert tokenizer.decode(tokenizer.encode("ab")) == "ab"
    assert tokenizer.encode("") == [1]


def test_phi3_control_tokens_swallow_the_white_space_after_them() -> None:
    """Only the architecture's name tells."""
    metadata = sentencepiece_metadata()
    metadata["general.architecture"] = "phi3"
    tokenizer = tokenizer_from_gguf(metadata)
    assert texts(tokenizer, "</s>\n ab") == ["</s>", "\u2581ab"]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (byte_level_metadata(pre="no-such-rule"), ("no-such-rule", "llama-bpe", "smollm")),
        (byte_level_metadata(model="t5"), ("t5", "gpt2", "llama")),
        (byte_level_metadata(model=None), ("None", "gpt2")),
    ],
)
def test_unknown_kinds_are_refused_with_those_that_are_known(
    metadata: dict[str, object], words: tuple[str, ...]
) -> None:
    """The message is what a user can act on."""
    with pytest.raises(UnsupportedModelError) as caught:
        tokenizer_from_gguf(metadata)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.parametrize(
    ("metadata", "word"),
    [
        (byte_level_metadata(tokens=None), "tokens"),
        (byte_level_metadata(tokens=[1, 2]), "tokens"),
        (byte_level_metadata(tokens=["a", "a"], token_type=[1, 1]), "twice"),
        (byte_level_metadata(token_type=[1]), "token_type"),
        (byte_level_metadata(merges=None), "merges"),
        (byte_level_metadata(merges=["he"]), "merges"),
        (byte_level_metadata(merges=["h zzz"]), "merges"),
        (sentencepiece_metadata(scores=None), "scores"),
        (sentencepiece_metadata(scores=[0.0]), "scores"),
    ],
)
def test_lists_that_are_missing_or_contradict_each_other_are_corrupt(
    metadata: dict[str, object], word: str
) -> None:
    """A hostile file ends in one error, never in a wrong vocabulary."""
    with pytest.raises(CorruptFileError, match=word):
        tokenizer_from_gguf(metadata)


def test_a_missing_pre_tokenizer_is_the_default_one_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Old files have none."""
    tokenizer = tokenizer_from_gguf(byte_level_metadata(pre=None))
    assert texts(tokenizer, "hell") == ["hell"]
    assert "default" in caplog.text


def test_tokens_without_a_text_get_names_of_their_own() -> None:
    """As in llama.cpp: ids must not move."""
    metadata = byte_level_metadata(tokens=[*CHARACTER_OF_BYTE, "", ""], token_type=None, merges=[])
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.vocab_size == 258
    assert tokenizer.id_of("[EMPTY_257]") == 257


def test_names_of_special_tokens_come_from_their_ids(smollm2: Tokenizer, gemma3: Tokenizer) -> None:
    """What chat templates and stopping need."""
    assert (smollm2.bos_token, smollm2.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert (smollm2.bos_token_id, smollm2.eos_token_id) == (1, 2)
    assert json.dumps(
        {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
    ) == json.dumps(gemma3.special_tokens)


def test_word_pieces_without_keys_for_their_marks_take_the_usual_names() -> None:
    """Letters stay large where the vocabulary has large ones; without marks the file is broken."""
    words = ["[UNK]", "[CLS]", "[SEP]", "▁Fox", "▁fox", "es", "▁a"]
    metadata = {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3, 3, 3, 1, 1, 1, 1],
    }
    tokenizer = tokenizer_from_gguf(metadata)

    assert tokenizer.encode("Fox foxes a") == [1, 3, 4, 5, 6, 2]
    assert tokenizer.decode([4, 5]) == "foxes"
    with pytest.raises(CorruptFileError, match=r"seperator_token_id is missing.*\[SEP\]"):
        tokenizer_from_gguf(metadata | {"tokenizer.ggml.tokens": [*words[:2], "▁b", *words[3:]]})
