"""Where a runtime keeps what it makes of weights before it computes."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Final

from keras_transformer.export.errors import ExportError
from keras_transformer.utils.types import Path

# Smaller files are packed faster than a file is found and compared with its hash.
_LEAST_BYTES: Final = 2**26
_SUFFIX = ".weight_cache"


@dataclasses.dataclass(frozen=True)
class WeightFolder:
    """A folder for packed weights.

    Args:
        path: its path. It is made when it is first written to.
        least_bytes: int. The packed weights of smaller files are not written.
        is_checked: bool. Whether a file in it is compared with its hash before it is used.
    """

    path: pathlib.Path
    least_bytes: int = 0
    is_checked: bool = True


def weight_folder(bundle: pathlib.Path, chosen: Path | bool | None, is_checked: bool = True) -> WeightFolder | None:
    """The folder for the packed weights of a bundle; None for memory.

    Args:
        bundle: path of the bundle.
        chosen: the path of a folder; None for one beside the bundle, which is for large files alone; False for memory.
        is_checked: see `WeightFolder`.

    Raises:
        ExportError: it is True, or no path.

    Example:

    >>> weight_folder(pathlib.Path("/models/phone"), None).path.as_posix()
    '/models/phone.weight_cache'
    """
    if chosen is False:
        return None
    if chosen is None:
        whole = bundle.resolve()
        return WeightFolder(whole.with_name(whole.name + _SUFFIX), _LEAST_BYTES, is_checked)
    try:
        if not isinstance(chosen, bool):
            return WeightFolder(pathlib.Path(chosen), is_checked=is_checked)
    except TypeError:
        pass
    raise ExportError(f"weight_cache must be the path of a folder, None or False. Received: {chosen!r}")
