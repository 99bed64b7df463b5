"""One file per architecture: a size table, and a function from symbolic inputs to outputs."""

from keras_transformer.models.audio.hubert import HuBERT
from keras_transformer.models.audio.moonshine import Moonshine
from keras_transformer.models.audio.parakeet import Parakeet
from keras_transformer.models.audio.vits import VITS
from keras_transformer.models.audio.wav2vec2 import XLSR, StreamingWav2Vec2, Wav2Vec2
from keras_transformer.models.audio.wavlm import WavLM
from keras_transformer.models.audio.whisper import Whisper, WhisperEncoder
from keras_transformer.models.building.encoder_decoder import read_twice
from keras_transformer.models.building.prefill_exit import PrefillExit
from keras_transformer.models.building.size import Size
from keras_transformer.models.diffusion.dit import DiT
from keras_transformer.models.diffusion.flux import Flux
from keras_transformer.models.diffusion.image_autoencoder import ImageAutoencoder
from keras_transformer.models.diffusion.mm_dit import MMDiT
from keras_transformer.models.multimodal.clip import CLIP, CLIPText, CLIPVision
from keras_transformer.models.multimodal.kosmos import Kosmos, Kosmos2, kosmos2_vision
from keras_transformer.models.multimodal.layoutlm import LayoutLM
from keras_transformer.models.multimodal.paligemma import PaliGemma
from keras_transformer.models.multimodal.qwen2_5_vl import Qwen2_5VL
from keras_transformer.models.multimodal.qwen2_5_vl_vision import Qwen2_5VLVision
from keras_transformer.models.multimodal.siglip import SigLIP, SigLIPText, SigLIPVision
from keras_transformer.models.multimodal.siglip2 import SigLIP2Vision
from keras_transformer.models.recurrent.bahdanau import Bahdanau, BahdanauSize
from keras_transformer.models.recurrent.recurrent_memory import RecurrentMemory
from keras_transformer.models.recurrent.retnet import RetNet
from keras_transformer.models.recurrent.rwkv import RWKV
from keras_transformer.models.recurrent.rwkv7 import RWKV7, RWKV7Ranks
from keras_transformer.models.recurrent.s4 import S4Model
from keras_transformer.models.recurrent.transformer_xl import TransformerXL
from keras_transformer.models.text.decoders.bloom import BLOOM
from keras_transformer.models.text.decoders.decoder import Decoder
from keras_transformer.models.text.decoders.gemma import Gemma
from keras_transformer.models.text.decoders.gemma2 import Gemma2
from keras_transformer.models.text.decoders.gemma3 import Gemma3
from keras_transformer.models.text.decoders.gemma3n import Gemma3n, Gemma3nStreams
from keras_transformer.models.text.decoders.gpt2 import GPT2
from keras_transformer.models.text.decoders.llama import Llama
from keras_transformer.models.text.decoders.mistral import Mistral
from keras_transformer.models.text.decoders.mixtral import Mixtral
from keras_transformer.models.text.decoders.qwen2 import Qwen2
from keras_transformer.models.text.decoders.qwen3 import Qwen3
from keras_transformer.models.text.decoders.reformer import Reformer
from keras_transformer.models.text.decoders.retro import RETRO, RetroSize
from keras_transformer.models.text.decoders.yoco import YOCO
from keras_transformer.models.text.encoder_decoders.bart import BART, MBart
from keras_transformer.models.text.encoder_decoders.evolved_transformer import EvolvedSize, EvolvedTransformer
from keras_transformer.models.text.encoder_decoders.lite_transformer import LiteTransformer
from keras_transformer.models.text.encoder_decoders.marian import Marian, Pegasus
from keras_transformer.models.text.encoder_decoders.t5 import T5, T5Encoder, T5Size
from keras_transformer.models.text.encoder_decoders.transformer import Transformer
from keras_transformer.models.text.encoders.albert import ALBERT
from keras_transformer.models.text.encoders.bert import BERT
from keras_transformer.models.text.encoders.bigbird import BigBird
from keras_transformer.models.text.encoders.deberta import DeBERTa
from keras_transformer.models.text.encoders.distilbert import DistilBERT
from keras_transformer.models.text.encoders.electra import ELECTRA
from keras_transformer.models.text.encoders.encoder import Encoder
from keras_transformer.models.text.encoders.longformer import Longformer
from keras_transformer.models.text.encoders.modernbert import ModernBERT
from keras_transformer.models.text.encoders.mpnet import MPNet
from keras_transformer.models.text.encoders.roberta import RoBERTa
from keras_transformer.models.text.encoders.roformer import RoFormer
from keras_transformer.models.text.encoders.xlnet import XLNet, with_query_stream
from keras_transformer.models.text.encoders.xlnet_memory import with_memory
from keras_transformer.models.transforms.chunkwise import Chunkwise
from keras_transformer.models.transforms.encode_in_windows import encode_in_windows
from keras_transformer.models.transforms.first_token import first_token
from keras_transformer.models.transforms.front_end import with_front_end
from keras_transformer.models.transforms.layout_map import layout_map
from keras_transformer.models.transforms.packed import packed
from keras_transformer.models.transforms.stepwise import Stepwise
from keras_transformer.models.transforms.with_image_size import with_image_size
from keras_transformer.models.transforms.with_streaming import with_streaming
from keras_transformer.models.vision.convnext import ConvNeXt, ConvNeXtSize
from keras_transformer.models.vision.crate import CRATE
from keras_transformer.models.vision.deit import DeiT
from keras_transformer.models.vision.detectors.d_fine import DFINE, DFINESize
from keras_transformer.models.vision.detectors.detr import DETR, DETRSize
from keras_transformer.models.vision.detectors.hybrid_encoder import HybridEncoderSize
from keras_transformer.models.vision.detectors.rt_detr import RTDETR, RTDETRSize
from keras_transformer.models.vision.detectors.yolos import YOLOS
from keras_transformer.models.vision.dinov2 import DINOv2
from keras_transformer.models.vision.dinov3 import DINOv3
from keras_transformer.models.vision.hgnet_v2 import HGNetV2, HGNetV2Size, HGNetV2Stage
from keras_transformer.models.vision.rednet import RedNet
from keras_transformer.models.vision.resnet import ResNet, ResNetSize
from keras_transformer.models.vision.sam import SAM, SAMSize
from keras_transformer.models.vision.segformer import SegFormer, SegFormerSize
from keras_transformer.models.vision.swin import Swin, SwinSize
from keras_transformer.models.vision.vit import ViT

MODELS = {
    "vit": ViT,
    "deit": DeiT,
    "dinov2": DINOv2,
    "dinov3": DINOv3,
    "swin": Swin,
    "segformer": SegFormer,
    "sam": SAM,
    "convnext": ConvNeXt,
    "yolos": YOLOS,
    "d_fine": DFINE,
    "detr": DETR,
    "crate": CRATE,
    "dit": DiT,
    "mm_dit": MMDiT,
    "flux": Flux,
    "image_autoencoder": ImageAutoencoder,
    "rednet": RedNet,
    "resnet": ResNet,
    "clip": CLIP,
    "clip_text": CLIPText,
    "clip_vision": CLIPVision,
    "siglip": SigLIP,
    "siglip_text": SigLIPText,
    "siglip_vision": SigLIPVision,
    "siglip2_vision": SigLIP2Vision,
    "kosmos": Kosmos,
    "kosmos2": Kosmos2,
    "paligemma": PaliGemma,
    "qwen2_5_vl": Qwen2_5VL,
    "qwen2_5_vl_vision": Qwen2_5VLVision,
    "transformer": Transformer,
    "lite_transformer": LiteTransformer,
    "evolved_transformer": EvolvedTransformer,
    "encoder": Encoder,
    "decoder": Decoder,
    "albert": ALBERT,
    "bert": BERT,
    "deberta": DeBERTa,
    "bigbird": BigBird,
    "distilbert": DistilBERT,
    "electra": ELECTRA,
    "layoutlm": LayoutLM,
    "longformer": Longformer,
    "modernbert": ModernBERT,
    "mpnet": MPNet,
    "roberta": RoBERTa,
    "roformer": RoFormer,
    "xlnet": XLNet,
    "gpt2": GPT2,
    "llama": Llama,
    "mistral": Mistral,
    "mixtral": Mixtral,
    "qwen2": Qwen2,
    "qwen3": Qwen3,
    "gemma": Gemma,
    "gemma2": Gemma2,
    "gemma3": Gemma3,
    "gemma3n": Gemma3n,
    "bloom": BLOOM,
    "reformer": Reformer,
    "retnet": RetNet,
    "hgnet_v2": HGNetV2,
    "rt_detr": RTDETR,
    "rwkv": RWKV,
    "rwkv7": RWKV7,
    "s4": S4Model,
    "transformer_xl": TransformerXL,
    "recurrent_memory": RecurrentMemory,
    "retro": RETRO,
    "yoco": YOCO,
    "bahdanau": Bahdanau,
    "bart": BART,
    "mbart": MBart,
    "marian": Marian,
    "pegasus": Pegasus,
    "wav2vec2": Wav2Vec2,
    "streaming_wav2vec2": StreamingWav2Vec2,
    "xlsr": XLSR,
    "hubert": HuBERT,
    "wavlm": WavLM,
    "moonshine": Moonshine,
    "parakeet": Parakeet,
    "vits": VITS,
    "whisper": Whisper,
    "whisper_encoder": WhisperEncoder,
    "t5": T5,
    "t5_encoder": T5Encoder,
}

__all__ = [
    "ALBERT",
    "BART",
    "BERT",
    "BLOOM",
    "CLIP",
    "CRATE",
    "DETR",
    "DFINE",
    "ELECTRA",
    "Flux",
    "GPT2",
    "MODELS",
    "RETRO",
    "RTDETR",
    "RWKV",
    "RWKV7",
    "RWKV7Ranks",
    "SAM",
    "SAMSize",
    "T5",
    "VITS",
    "XLSR",
    "YOCO",
    "YOLOS",
    "Bahdanau",
    "BahdanauSize",
    "BigBird",
    "CLIPText",
    "CLIPVision",
    "Chunkwise",
    "DETRSize",
    "DFINESize",
    "DINOv2",
    "DINOv3",
    "ConvNeXt",
    "ConvNeXtSize",
    "DeBERTa",
    "Decoder",
    "DeiT",
    "DiT",
    "DistilBERT",
    "Encoder",
    "EvolvedSize",
    "EvolvedTransformer",
    "Gemma",
    "Gemma2",
    "Gemma3",
    "Gemma3n",
    "Gemma3nStreams",
    "HGNetV2",
    "HGNetV2Size",
    "HGNetV2Stage",
    "HuBERT",
    "HybridEncoderSize",
    "ImageAutoencoder",
    "Kosmos",
    "Kosmos2",
    "LayoutLM",
    "LiteTransformer",
    "Llama",
    "Longformer",
    "MBart",
    "MMDiT",
    "MPNet",
    "Marian",
    "Mistral",
    "Mixtral",
    "ModernBERT",
    "Moonshine",
    "PaliGemma",
    "Parakeet",
    "Pegasus",
    "PrefillExit",
    "Qwen2",
    "Qwen2_5VL",
    "Qwen2_5VLVision",
    "Qwen3",
    "RecurrentMemory",
    "Reformer",
    "RedNet",
    "ResNet",
    "ResNetSize",
    "RTDETRSize",
    "RetNet",
    "RetroSize",
    "RoBERTa",
    "RoFormer",
    "S4Model",
    "SegFormer",
    "SegFormerSize",
    "SigLIP",
    "SigLIP2Vision",
    "SigLIPText",
    "SigLIPVision",
    "Size",
    "Stepwise",
    "StreamingWav2Vec2",
    "Swin",
    "SwinSize",
    "T5Encoder",
    "T5Size",
    "Transformer",
    "TransformerXL",
    "ViT",
    "Wav2Vec2",
    "WavLM",
    "Whisper",
    "WhisperEncoder",
    "XLNet",
    "encode_in_windows",
    "kosmos2_vision",
    "layout_map",
    "first_token",
    "packed",
    "read_twice",
    "with_front_end",
    "with_image_size",
    "with_memory",
    "with_streaming",
    "with_query_stream",
]
