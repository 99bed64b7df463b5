from .blocks import (
    Blocks as Blocks,
)
from .errors import (
    WeightQuantizationError as WeightQuantizationError,
)
from .methods import (
    GPTQ as GPTQ,
)
from .methods import (
    METHODS as METHODS,
)
from .methods import (
    Clipping as Clipping,
)
from .methods import (
    Method as Method,
)
from .methods import (
    Nearest as Nearest,
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
