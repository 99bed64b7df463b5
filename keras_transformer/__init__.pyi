from . import (
    attention as attention,
)
from . import (
    audio as audio,
)
from . import (
    backend as backend,
)
from . import (
    blocks as blocks,
)
from . import (
    catalog as catalog,
)
from . import (
    checkpoints as checkpoints,
)
from . import (
    data as data,
)
from . import (
    diffusion as diffusion,
)
from . import (
    export as export,
)
from . import (
    feedforward as feedforward,
)
from . import (
    generation as generation,
)
from . import (
    layers as layers,
)
from . import (
    models as models,
)
from . import (
    planning as planning,
)
from . import (
    plots as plots,
)
from . import (
    positions as positions,
)
from . import (
    quantization as quantization,
)
from . import (
    recurrence as recurrence,
)
from . import (
    retrieval as retrieval,
)
from . import (
    tasks as tasks,
)
from . import (
    text as text,
)
from . import (
    training as training,
)
from . import (
    utils as utils,
)
from . import (
    vision as vision,
)
from .utils.serialization import (
    load_model as load_model,
)
from .version import __version__ as __version__
