"""One file per architecture: a size table, and a function from symbolic inputs to outputs."""

from keras_transformer.models.bert import BERT
from keras_transformer.models.decoder import Decoder
from keras_transformer.models.encode_in_windows import encode_in_windows
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.prefill_exit import PrefillExit
from keras_transformer.models.recurrent_memory import RecurrentMemory
from keras_transformer.models.retnet import RetNet
from keras_transformer.models.rwkv import RWKV
from keras_transformer.models.s4 import S4Model
from keras_transformer.models.size import Size
from keras_transformer.models.stepwise import Stepwise
from keras_transformer.models.transformer import Transformer
from keras_transformer.models.transformer_xl import TransformerXL
from keras_transformer.models.vit import ViT
from keras_transformer.models.yoco import YOCO

MODELS = {
    "vit": ViT,
    "transformer": Transformer,
    "encoder": Encoder,
    "decoder": Decoder,
    "bert": BERT,
    "retnet": RetNet,
    "rwkv": RWKV,
    "s4": S4Model,
    "transformer_xl": TransformerXL,
    "recurrent_memory": RecurrentMemory,
    "yoco": YOCO,
}

__all__ = [
    "BERT",
    "MODELS",
    "RWKV",
    "YOCO",
    "Decoder",
    "Encoder",
    "PrefillExit",
    "RecurrentMemory",
    "RetNet",
    "S4Model",
    "Size",
    "Stepwise",
    "Transformer",
    "TransformerXL",
    "ViT",
    "encode_in_windows",
]
