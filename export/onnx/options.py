"""Options of ONNX files."""

import dataclasses

from keras_transformer.export.errors import ExportError
from keras_transformer.export.remedies import Remedy

PLAIN_OPSET = 18
OPSETS = tuple(range(PLAIN_OPSET, 25))
DEFAULT_OPSET = 23
CONTRIB = "com.microsoft"  # The domain of ONNX Runtime's contrib operators.


@dataclasses.dataclass(frozen=True)
class OnnxOptions:
    """Operators that an ONNX file may use.

    Args:
        opset: int from 18 to 24: the version of the operator set. 20 has `Gelu`; 23 `Attention`, `RMSNormalization` and
            `RotaryEmbedding`; 24 `TensorScatter` for caches, and needs ONNX Runtime 1.25. None for 23, which ONNX Runtime
            1.23 and later run.
        contrib_ops: bool. Whether contrib operators of ONNX Runtime (domain `com.microsoft`) may be used where the
            operator set lacks one. With False, files have standard operators only.
        cached_attention: bool. Whether attention over a key/value cache, with the update of the cache, is the contrib
            operator `GroupQueryAttention`, which reads filled slots only and writes in place. With False it is `ScatterND`
            and `Attention`. Files for OpenVINO and for a target are written so.
        optimize: bool. Whether the graph is rewritten to fused operators. Without it, files have opset 18.

    Raises:
        ExportError: the opset is not one of these, or is not 18 without `optimize`.

    Example:

    >>> OnnxOptions().target
    23
    >>> OnnxOptions(optimize=False).target
    18
    """

    opset: int | None = None
    contrib_ops: bool = True
    cached_attention: bool = True
    optimize: bool = True

    def __post_init__(self) -> None:
        if self.opset is not None and (isinstance(self.opset, bool) or self.opset not in OPSETS):
            raise ExportError(f"onnx: opset must be one of {OPSETS[0]} to {OPSETS[-1]}, not {self.opset!r}")
        if not self.optimize and self.opset not in (None, PLAIN_OPSET):
            message = f"onnx: opset {self.opset} needs optimize=True; the converter writes opset {PLAIN_OPSET}"
            raise ExportError(message, Remedy.OPSET)

    @property
    def target(self) -> int:
        """The opset of the files."""
        return self.opset or (DEFAULT_OPSET if self.optimize else PLAIN_OPSET)
