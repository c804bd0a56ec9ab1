"""Architecture name -> model class. A new architecture is one line here, and a file if need be.

Names are the ones in `architectures` of Hugging Face's config.json.
"""

from __future__ import annotations

from octavo.contracts.own_models import load_plugins, registered_class
from octavo.errors import UnsupportedModelError
from octavo.foundation.registry import Registry
from octavo.models.base import CausalLM

ARCHITECTURES: Registry[type[CausalLM]] = Registry(
    "model architecture",
    {
        "ArceeForCausalLM": "octavo.models.llama:Llama",
        "BambaForCausalLM": "octavo.models.llama:Llama",
        "BertModel": "octavo.models.bert:Bert",
        "BloomForCausalLM": "octavo.models.llama:Llama",
        "Cohere2ForCausalLM": "octavo.models.gpt_neox:GptNeoX",
        "CohereForCausalLM": "octavo.models.gpt_neox:GptNeoX",
        "DeepseekV2ForCausalLM": "octavo.models.llama:Llama",
        "DeepseekV3ForCausalLM": "octavo.models.llama:Llama",
        "Ernie4_5ForCausalLM": "octavo.models.llama:Llama",
        "FalconH1ForCausalLM": "octavo.models.falcon_h1:FalconH1",
        "FalconForCausalLM": "octavo.models.gpt_neox:GptNeoX",
        "GPT2LMHeadModel": "octavo.models.llama:Llama",
        "GPTBigCodeForCausalLM": "octavo.models.llama:Llama",
        "GPTNeoXForCausalLM": "octavo.models.gpt_neox:GptNeoX",
        "Gemma2ForCausalLM": "octavo.models.gemma2:Gemma2",
        "Gemma3ForCausalLM": "octavo.models.gemma2:Gemma2",
        "Gemma3ForConditionalGeneration": "octavo.models.gemma2:Gemma2",  # its text part
        "GemmaForCausalLM": "octavo.models.llama:Llama",
        "Glm4ForCausalLM": "octavo.models.gemma2:Gemma2",
        "Glm4MoeForCausalLM": "octavo.models.llama:Llama",
        "GlmForCausalLM": "octavo.models.llama:Llama",
        "GptOssForCausalLM": "octavo.models.llama:Llama",
        "GraniteForCausalLM": "octavo.models.llama:Llama",
        "GraniteMoeForCausalLM": "octavo.models.llama:Llama",
        "GraniteMoeHybridForCausalLM": "octavo.models.llama:Llama",
        "HeliumForCausalLM": "octavo.models.llama:Llama",
        "JambaForCausalLM": "octavo.models.llama:Llama",
        "Llama4ForCausalLM": "octavo.models.llama:Llama",
        "Llama4ForConditionalGeneration": "octavo.models.llama:Llama",  # its text part
        "LlamaForCausalLM": "octavo.models.llama:Llama",
        "Mamba2ForCausalLM": "octavo.models.mamba:MambaModel",
        "MinistralForCausalLM": "octavo.models.llama:Llama",
        "MistralForCausalLM": "octavo.models.llama:Llama",
        "MixtralForCausalLM": "octavo.models.llama:Llama",
        "ModernBertModel": "octavo.models.modernbert:ModernBert",
        "MptForCausalLM": "octavo.models.llama:Llama",
        "NemotronForCausalLM": "octavo.models.llama:Llama",
        "NemotronHForCausalLM": "octavo.models.mamba:MambaModel",
        "OPTForCausalLM": "octavo.models.llama:Llama",
        "Olmo2ForCausalLM": "octavo.models.olmo2:Olmo2",
        "Olmo3ForCausalLM": "octavo.models.olmo2:Olmo2",
        "OlmoForCausalLM": "octavo.models.llama:Llama",
        "OlmoeForCausalLM": "octavo.models.llama:Llama",
        "Phi3ForCausalLM": "octavo.models.llama:Llama",
        "PhiForCausalLM": "octavo.models.gpt_neox:GptNeoX",
        "PhimoeForCausalLM": "octavo.models.llama:Llama",
        "Qwen2ForCausalLM": "octavo.models.llama:Llama",
        "Qwen2MoeForCausalLM": "octavo.models.llama:Llama",
        "Qwen3ForCausalLM": "octavo.models.llama:Llama",
        "Qwen3MoeForCausalLM": "octavo.models.llama:Llama",
        "Qwen3NextForCausalLM": "octavo.models.llama:Llama",
        "Qwen3_5ForCausalLM": "octavo.models.llama:Llama",
        "Qwen3_5ForConditionalGeneration": "octavo.models.llama:Llama",  # its text part
        "Qwen3_5MoeForCausalLM": "octavo.models.llama:Llama",
        "Qwen3_5MoeForConditionalGeneration": "octavo.models.llama:Llama",  # its text part
        "SeedOssForCausalLM": "octavo.models.llama:Llama",
        "SmolLM3ForCausalLM": "octavo.models.llama:Llama",
        "StableLmForCausalLM": "octavo.models.gpt_neox:GptNeoX",
        "Starcoder2ForCausalLM": "octavo.models.llama:Llama",
        "XLMRobertaModel": "octavo.models.bert:Bert",
    },
)


def model_class(architecture: str) -> type[CausalLM]:
    """The class that computes `architecture`: one that a user registered, else ours.

    Raises UnsupportedModelError with the nearest and all known names, ConfigError for a registered
    class that cannot be had.
    """
    if (registered := registered_class(architecture)) is not None:
        return registered
    if architecture not in ARCHITECTURES:
        raise UnsupportedModelError(
            ". ".join([ARCHITECTURES.unknown(architecture), *load_plugins()])
        )
    return ARCHITECTURES.load(architecture)
