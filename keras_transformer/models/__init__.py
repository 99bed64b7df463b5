"""One file per architecture: a size table, and a function from symbolic inputs to outputs."""

from keras_transformer.models.decoder import Decoder
from keras_transformer.models.encoder import Encoder
from keras_transformer.models.size import Size
from keras_transformer.models.stepwise import Stepwise
from keras_transformer.models.transformer import Transformer
from keras_transformer.models.vit import ViT

MODELS = {
    "vit": ViT,
    "transformer": Transformer,
    "encoder": Encoder,
    "decoder": Decoder,
}

__all__ = ["MODELS", "Decoder", "Encoder", "Size", "Stepwise", "Transformer", "ViT"]
