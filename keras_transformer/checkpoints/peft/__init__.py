"""Low-rank adapters in the format of Hugging Face's PEFT."""

from keras_transformer.checkpoints.peft.reading import from_peft
from keras_transformer.checkpoints.peft.writing import to_peft

__all__ = ["from_peft", "to_peft"]
