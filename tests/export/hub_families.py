"""The classes of KerasHub that generate text: those with a cache for texts alone, and why others are refused."""

FAMILIES = (
    *("BloomCausalLM", "FalconCausalLM", "GPT2CausalLM", "GPTNeoXCausalLM", "Gemma3CausalLM", "Gemma3nCausalLM"),
    *("Gemma4CausalLM", "GemmaCausalLM", "GptOssCausalLM", "Llama3CausalLM", "LlamaCausalLM", "MistralCausalLM"),
    *("MixtralCausalLM", "OPTCausalLM", "Phi3CausalLM", "Qwen3CausalLM", "Qwen3MoeCausalLM", "QwenCausalLM"),
    *("QwenMoeCausalLM", "SmolLM3CausalLM"),
)
# They read images or other models, or compute in Python with the lengths of texts.
WITHOUT_CACHE_FOR_TEXTS = {
    "BLIP2CausalLM": "takes no prompt of text alone|makes no cache for texts alone",
    "PARSeqCausalLM": "takes no prompt of text alone",
    "PaliGemmaCausalLM": "takes no prompt of text alone|makes no cache for texts alone",
    "Qwen3_5CausalLM": "is no graph for texts of any length",
    "Qwen3_5MoeCausalLM": "is no graph for texts of any length",
    "RWKV7CausalLM": "takes no prompt of text alone|makes no cache|is no graph for texts of any length",
}
# It drafts for another model, and is no model of texts by itself.
DRAFTS = ("Gemma4AssistantCausalLM",)
