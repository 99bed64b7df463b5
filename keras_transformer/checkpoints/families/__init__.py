"""The architectures of Hugging Face: one file each, and one line here for each `model_type`."""

from __future__ import annotations

from keras_transformer.checkpoints.architecture import Architecture
from keras_transformer.checkpoints.config import Config, shown
from keras_transformer.checkpoints.errors import UnknownArchitectureError
from keras_transformer.checkpoints.families.audio.moonshine import Moonshine
from keras_transformer.checkpoints.families.audio.parakeet import ParakeetCTC, ParakeetEncoder
from keras_transformer.checkpoints.families.audio.vits import Vits
from keras_transformer.checkpoints.families.audio.wav2vec2 import Hubert, Wav2Vec2Architecture, Wavlm
from keras_transformer.checkpoints.families.audio.whisper import Whisper
from keras_transformer.checkpoints.families.multimodal.clip import Clip, ClipText, ClipVision
from keras_transformer.checkpoints.families.multimodal.kosmos2 import Kosmos2Architecture
from keras_transformer.checkpoints.families.multimodal.layoutlm import Layoutlm
from keras_transformer.checkpoints.families.multimodal.paligemma import PaliGemmaArchitecture
from keras_transformer.checkpoints.families.multimodal.qwen2_5_vl import Qwen2_5VLArchitecture
from keras_transformer.checkpoints.families.multimodal.siglip import Siglip, SiglipText, SiglipVision
from keras_transformer.checkpoints.families.multimodal.siglip2 import Siglip2, Siglip2Vision
from keras_transformer.checkpoints.families.recurrent.kimi_linear import KimiLinear
from keras_transformer.checkpoints.families.recurrent.mamba2 import Mamba2
from keras_transformer.checkpoints.families.recurrent.minimax import MiniMax
from keras_transformer.checkpoints.families.recurrent.qwen3_next import Qwen3_5Text, Qwen3Next
from keras_transformer.checkpoints.families.recurrent.rwkv import Rwkv
from keras_transformer.checkpoints.families.recurrent.rwkv7 import Rwkv7
from keras_transformer.checkpoints.families.text.decoders.bloom import Bloom
from keras_transformer.checkpoints.families.text.decoders.falcon import Falcon
from keras_transformer.checkpoints.families.text.decoders.gemma import Gemma, Gemma2, Gemma3
from keras_transformer.checkpoints.families.text.decoders.gemma3n import Gemma3n
from keras_transformer.checkpoints.families.text.decoders.gpt2 import Gpt2
from keras_transformer.checkpoints.families.text.decoders.gpt_neox import GptNeoX
from keras_transformer.checkpoints.families.text.decoders.opt import Opt
from keras_transformer.checkpoints.families.text.decoders.reformer import ReformerArchitecture
from keras_transformer.checkpoints.families.text.encoder_decoders.bart import Bart, Marian, MBart, Pegasus
from keras_transformer.checkpoints.families.text.encoder_decoders.t5 import MT5Architecture, T5Architecture
from keras_transformer.checkpoints.families.text.encoders.albert import Albert
from keras_transformer.checkpoints.families.text.encoders.bert import Bert
from keras_transformer.checkpoints.families.text.encoders.bigbird import Bigbird
from keras_transformer.checkpoints.families.text.encoders.deberta_v2 import DebertaV2
from keras_transformer.checkpoints.families.text.encoders.distilbert import DistilBert
from keras_transformer.checkpoints.families.text.encoders.electra import Electra
from keras_transformer.checkpoints.families.text.encoders.eurobert import EuroBert
from keras_transformer.checkpoints.families.text.encoders.gte import Gte
from keras_transformer.checkpoints.families.text.encoders.longformer import LongFormer
from keras_transformer.checkpoints.families.text.encoders.modernbert import ModernBert
from keras_transformer.checkpoints.families.text.encoders.mpnet import Mpnet
from keras_transformer.checkpoints.families.text.encoders.nomic_bert import NomicBert
from keras_transformer.checkpoints.families.text.encoders.roberta import Roberta
from keras_transformer.checkpoints.families.text.encoders.roformer import Roformer
from keras_transformer.checkpoints.families.text.encoders.xlnet import Xlnet
from keras_transformer.checkpoints.families.text.llama_like.diffllama import DiffLlama
from keras_transformer.checkpoints.families.text.llama_like.granite import Granite
from keras_transformer.checkpoints.families.text.llama_like.llama import Llama, Mistral
from keras_transformer.checkpoints.families.text.llama_like.olmo2 import Olmo2
from keras_transformer.checkpoints.families.text.llama_like.phi3 import Phi3
from keras_transformer.checkpoints.families.text.llama_like.qwen import Qwen2, Qwen3
from keras_transformer.checkpoints.families.text.llama_like.smollm3 import SmolLM3
from keras_transformer.checkpoints.families.text.mixtures_of_experts.deepseek import DeepseekV2, DeepseekV3
from keras_transformer.checkpoints.families.text.mixtures_of_experts.gpt_oss import GptOss
from keras_transformer.checkpoints.families.text.mixtures_of_experts.mixtral import Mixtral
from keras_transformer.checkpoints.families.text.mixtures_of_experts.qwen_moe import Qwen2Moe, Qwen3Moe
from keras_transformer.checkpoints.families.vision.detectors.d_fine import DFine
from keras_transformer.checkpoints.families.vision.detectors.detr import Detr
from keras_transformer.checkpoints.families.vision.detectors.rt_detr import RtDetr, RtDetrV2
from keras_transformer.checkpoints.families.vision.detectors.yolos import Yolos
from keras_transformer.checkpoints.families.vision.dinov2 import Dinov2, Dinov2WithRegisters
from keras_transformer.checkpoints.families.vision.dinov3_convnext import Dinov3ConvNext
from keras_transformer.checkpoints.families.vision.dinov3_vit import Dinov3Vit
from keras_transformer.checkpoints.families.vision.sam import Sam
from keras_transformer.checkpoints.families.vision.segformer import Segformer
from keras_transformer.checkpoints.families.vision.swin import SwinArchitecture
from keras_transformer.checkpoints.families.vision.vit import Deit, Vit
from keras_transformer.utils.choice import nearest

ARCHITECTURES: dict[str, type[Architecture]] = {
    "albert": Albert,
    "bart": Bart,
    "bert": Bert,
    "big_bird": Bigbird,
    "bloom": Bloom,
    "camembert": Roberta,
    "clip": Clip,
    "clip_text_model": ClipText,
    "clip_vision_model": ClipVision,
    "d_fine": DFine,
    "deberta-v2": DebertaV2,
    "deepseek_v2": DeepseekV2,
    "deepseek_v3": DeepseekV3,
    "deit": Deit,
    "detr": Detr,
    "diffllama": DiffLlama,
    "dinov2": Dinov2,
    "dinov2_with_registers": Dinov2WithRegisters,
    "dinov3_convnext": Dinov3ConvNext,
    "dinov3_vit": Dinov3Vit,
    "distilbert": DistilBert,
    "electra": Electra,
    "eurobert": EuroBert,
    "falcon": Falcon,
    "gemma": Gemma,
    "gemma2": Gemma2,
    "gemma3_text": Gemma3,
    "gemma3n_text": Gemma3n,
    "gpt2": Gpt2,
    "gpt_neox": GptNeoX,
    "gpt_oss": GptOss,
    "granite": Granite,
    "gte": Gte,
    "hubert": Hubert,
    "kimi_k2": DeepseekV3,
    "kimi_linear": KimiLinear,
    "kosmos-2": Kosmos2Architecture,
    "layoutlm": Layoutlm,
    "llama": Llama,
    "longformer": LongFormer,
    "mamba2": Mamba2,
    "marian": Marian,
    "mbart": MBart,
    "minimax": MiniMax,
    "mistral": Mistral,
    "mixtral": Mixtral,
    "modernbert": ModernBert,
    "moonshine": Moonshine,
    "parakeet_ctc": ParakeetCTC,
    "parakeet_encoder": ParakeetEncoder,
    "mpnet": Mpnet,
    "mt5": MT5Architecture,
    "new": Gte,
    "nomic_bert": NomicBert,
    "olmo2": Olmo2,
    "opt": Opt,
    "paligemma": PaliGemmaArchitecture,
    "pegasus": Pegasus,
    "phi3": Phi3,
    "qwen2": Qwen2,
    "qwen2_5_vl": Qwen2_5VLArchitecture,
    "qwen2_moe": Qwen2Moe,
    "qwen3": Qwen3,
    "qwen3_5_text": Qwen3_5Text,
    "qwen3_moe": Qwen3Moe,
    "qwen3_next": Qwen3Next,
    "reformer": ReformerArchitecture,
    "roberta": Roberta,
    "roformer": Roformer,
    "rt_detr": RtDetr,
    "rt_detr_v2": RtDetrV2,
    "rwkv": Rwkv,
    "rwkv7": Rwkv7,
    "sam": Sam,
    "segformer": Segformer,
    "siglip": Siglip,
    "siglip2": Siglip2,
    "siglip2_text_model": SiglipText,
    "siglip2_vision_model": Siglip2Vision,
    "siglip_text_model": SiglipText,
    "siglip_vision_model": SiglipVision,
    "smollm3": SmolLM3,
    "swin": SwinArchitecture,
    "t5": T5Architecture,
    "vit": Vit,
    "vits": Vits,
    "wav2vec2": Wav2Vec2Architecture,
    "wavlm": Wavlm,
    "whisper": Whisper,
    "xlm-roberta": Roberta,
    "xlnet": Xlnet,
    "yolos": Yolos,
}


def find_architecture(config: Config) -> Architecture:
    """Returns the `Architecture` of a `Config`.

    Raises:
        UnknownArchitectureError: its "model_type" is not in `ARCHITECTURES`.
    """
    name = config.get("model_type")
    if not isinstance(name, str) or name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        near = nearest(name, ARCHITECTURES)
        hint = f" Did you mean {near!r}?" if near else ""
        raise UnknownArchitectureError(
            f"{config.source}: unknown model_type {shown(name)}.{hint} Known: {known}. Others are added as a subclass of "
            "`checkpoints.Architecture` in `checkpoints.ARCHITECTURES`."
        )
    return ARCHITECTURES[name]()
