from .blocks import (
    Blocks as Blocks,
)
from .choose_schemes import (
    choose_schemes as choose_schemes,
)
from .errors import (
    WeightQuantizationError as WeightQuantizationError,
)
from .methods import (
    AWQ as AWQ,
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
from .transforms.rotate import (
    rotate as rotate,
)
from .transforms.smooth import (
    smooth as smooth,
)
