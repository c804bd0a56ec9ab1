"""The files of the tiny models are whole: their tokenizers load and say the same."""

from __future__ import annotations

from gguf import GGMLQuantizationType as GgmlType

from tests.models.conftest import TinyModels
from tests.support.tiny_gguf import all_of
from tests.support.tiny_models import BOS, EOS, VOCAB_SIZE
from tests.support.tiny_tokenizer import tiny_library

TEXT = "A sheet that is folded three times: an octavo. 日本語 🙂"


def test_folder_and_gguf_file_bring_the_same_tokenizer(tiny_models: TinyModels) -> None:
    """Both come from one byte-level BPE."""
    expected = tiny_library().encode(TEXT, add_special_tokens=False).ids

    for file_name, choose in (("folder", None), ("F32.gguf", all_of(GgmlType.F32))):
        checkpoint = tiny_models("llama", file_name, choose).checkpoint
        tokenizer = checkpoint.load_tokenizer()
        assert expected == tokenizer.encode(TEXT)
        assert tokenizer.decode(expected) == TEXT
        assert VOCAB_SIZE == checkpoint.facts.vocab_size
        assert (BOS, (EOS,)) == (checkpoint.facts.bos_token_id, checkpoint.facts.eos_token_ids)
