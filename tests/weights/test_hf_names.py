"""Names of tensors in Hugging Face's older architectures."""

from __future__ import annotations

import pytest

from octavo.errors import CorruptFileError
from octavo.weights.checkpoint import TensorView, WeightType
from octavo.weights.hf_names import layout_of, renamed


def our_name(architecture: str, name: str) -> str:
    view = TensorView(name, WeightType.F32, (0,), memoryview(b""))
    ((ours, found),) = renamed({name: view}, layout_of(architecture)).items()
    assert ours == found.name
    return ours


@pytest.mark.parametrize(
    ("architecture", "names", "ours"),
    [
        (
            "GPT2LMHeadModel",
            ["transformer.h.11.attn.c_attn.bias", "h.11.attn.c_attn.bias"],
            "model.layers.11.self_attn.qkv_proj.bias",
        ),
        (
            "OPTForCausalLM",
            ["model.decoder.layers.3.fc1.weight", "decoder.layers.3.fc1.weight"],
            "model.layers.3.mlp.up_proj.weight",
        ),
        (
            "OPTForCausalLM",
            ["model.decoder.final_layer_norm.bias", "decoder.final_layer_norm.bias"],
            "model.norm.bias",
        ),
        ("GPTNeoXForCausalLM", ["embed_out.weight"], "lm_head.weight"),
    ],
)
def test_a_name_is_known_with_and_without_the_words_in_front(
    architecture: str, names: list[str], ours: str
) -> None:
    """Files saved from the bare model leave them out."""
    assert [ours] * len(names) == [our_name(architecture, name) for name in names]


def test_two_tensors_that_would_have_one_name_are_refused() -> None:
    """A file that has a layer twice, with and without the words in front."""
    names = ("transformer.wte.weight", "wte.weight")
    views = {name: TensorView(name, WeightType.F32, (0,), memoryview(b"")) for name in names}

    with pytest.raises(CorruptFileError, match=r"both be model\.embed_tokens\.weight"):
        renamed(views, layout_of("GPT2LMHeadModel"))


@pytest.mark.parametrize(
    "name", ["model.layers.0.mlp.down_proj.weight", "lm_head.weight", "something.else", "h.0.extra"]
)
def test_a_name_that_is_in_no_table_stays(name: str) -> None:
    """Ours already, or one that the loader will list."""
    assert name == our_name("LlamaForCausalLM", name)
    assert name == our_name("PhiForCausalLM", name)
