"""Where tokens stand. An embedding position is added to the input; an attention position plugs into attention."""

from keras_transformer.positions.attention_position import AttentionPosition
from keras_transformer.positions.learned import Learned
from keras_transformer.positions.rotary import Rotary
from keras_transformer.positions.sinusoidal import Sinusoidal

EMBEDDING_POSITIONS = {
    "sinusoidal": Sinusoidal,
    "learned": Learned,
}

ATTENTION_POSITIONS = {
    "rotary": Rotary,
}

__all__ = ["ATTENTION_POSITIONS", "EMBEDDING_POSITIONS", "AttentionPosition", "Learned", "Rotary", "Sinusoidal"]
