from .blocks import (
    Blocks as Blocks,
)
from .errors import (
    WeightQuantizationError as WeightQuantizationError,
)
from .quantize_weights import (
    quantize_weights as quantize_weights,
)
from .quantized_weights import (
    QuantizedWeights as QuantizedWeights,
)
from .scheme import (
    WeightScheme as WeightScheme,
)
