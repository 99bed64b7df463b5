"""Methods that choose the integers of weights, by name."""

from keras_transformer.quantization.methods.awq import AWQ
from keras_transformer.quantization.methods.clipping import Clipping
from keras_transformer.quantization.methods.gptq import GPTQ
from keras_transformer.quantization.methods.method import Method
from keras_transformer.quantization.methods.nearest import Nearest

METHODS: dict[str, type[Method]] = {"nearest": Nearest, "clipping": Clipping, "gptq": GPTQ, "awq": AWQ}

__all__ = ["AWQ", "GPTQ", "METHODS", "Clipping", "Method", "Nearest"]
