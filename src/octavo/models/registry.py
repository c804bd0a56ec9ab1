"""Architecture name -> model class. A new architecture is one file and one line here.

Names are the ones in `architectures` of Hugging Face's config.json.
"""

from __future__ import annotations

from octavo.errors import UnsupportedModelError
from octavo.foundation.registry import Registry
from octavo.models.base import CausalLM

ARCHITECTURES: Registry[type[CausalLM]] = Registry(
    "model architecture",
    {
        "Gemma3ForCausalLM": "octavo.models.gemma3:Gemma3",
        "Gemma3ForConditionalGeneration": "octavo.models.gemma3:Gemma3",  # its text part
        "LlamaForCausalLM": "octavo.models.llama:Llama",
        "MistralForCausalLM": "octavo.models.llama:Llama",
        "Qwen2ForCausalLM": "octavo.models.qwen2:Qwen2",
        "Qwen3ForCausalLM": "octavo.models.qwen3:Qwen3",
    },
)


def model_class(architecture: str) -> type[CausalLM]:
    """The class that computes `architecture`.

    Raises UnsupportedModelError with the nearest and all known names.
    """
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(ARCHITECTURES.unknown(architecture))
    return ARCHITECTURES.load(architecture)
