from .building import (
    build as build,
)
from .devices import (
    DEVICES as DEVICES,
)
from .devices import (
    Device as Device,
)
from .devices import (
    Reached as Reached,
)
from .errors import (
    PlanningError as PlanningError,
)
from .errors import (
    UnknownCostError as UnknownCostError,
)
from .get_device import (
    get_device as get_device,
)
from .options import (
    DTYPES as DTYPES,
)
from .options import (
    OPTIMIZER_SLOTS as OPTIMIZER_SLOTS,
)
from .plans import (
    Plan as Plan,
)
from .plans import (
    plan as plan,
)
from .search import (
    search as search,
)
from .split import (
    Split as Split,
)
