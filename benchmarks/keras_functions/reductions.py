"""Functions over axes: sums and extremes, running ones, statistics, orders and counts."""

import numpy as np
from keras import ops

from .case import ANY, BOOLS, FLOATS, OTHERS, WHOLE, case, normal, whole

NAN = np.float32("nan")


def _over(name, label, array, **options):
    function = getattr(ops, name)
    case(name, lambda x: function(x, **options), array, label=label, shapes=ANY)


for name in ["amax", "amin", "max", "mean", "min", "prod", "ptp", "std", "sum", "var"]:
    _over(name, "float32", FLOATS, axis=-1)
    _over(name, "int32", WHOLE, axis=-1)
    if name != "ptp":
        _over(name, "all axes", OTHERS, keepdims=True)
for name in ("all", "any"):
    _over(name, "float32", FLOATS, axis=-1)
    _over(name, "bool", BOOLS, axis=0)
for name in ("count_nonzero", "argmax", "argmin", "cumsum", "cumprod", "argsort", "sort", "median"):
    _over(name, "float32", FLOATS, axis=-1)
    _over(name, "int32", WHOLE, axis=-1)
for name in ("argmax", "argmin"):
    _over(name, "all axes", FLOATS)
    _over(name, "keepdims", FLOATS, axis=0, keepdims=True)
for name in ("argsort", "sort", "cumsum"):
    _over(name, "first axis", OTHERS, axis=0)
for name in ("argsort", "sort"):
    _over(name, "bool", BOOLS, axis=-1)
for name in ("argsort", "cumprod", "cumsum", "max", "min", "prod", "sort", "sum"):
    for dtype in ("int64", "uint8"):
        _over(name, dtype, np.abs(WHOLE).astype(dtype), axis=-1)
for name in [
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]:
    function = getattr(ops, name)
    case(name, lambda x, of=function: of(ops.where(x > 1, NAN, x), axis=-1), FLOATS, shapes=ANY)
for name, share in (("quantile", 0.3), ("percentile", 30.0)):
    for method in ("linear", "lower", "higher", "nearest", "midpoint"):
        function = getattr(ops, name)
        case(
            name,
            lambda x, of=function, q=share, m=method: of(x, q, axis=-1, method=m),
            OTHERS,
            label=method,
            shapes=ANY,
        )
    function = getattr(ops, f"nan{name}")
    case(f"nan{name}", lambda x, of=function, q=share: of(ops.where(x > 1, NAN, x), q, axis=-1), OTHERS)
case("quantile", lambda x: ops.quantile(x, [0.1, 0.5, 0.9], axis=1), OTHERS, label="several")
case("average", lambda x, w: ops.average(x, axis=-1, weights=w), OTHERS, np.abs(FLOATS) + 1)
case("logsumexp", lambda x: ops.logsumexp(x, axis=-1), FLOATS, shapes=ANY)
case("moments", lambda x: ops.moments(x, axes=[0]), OTHERS, shapes=ANY)
case("norm", lambda x: ops.norm(x, axis=-1), OTHERS, shapes=ANY)
for order in (1, "inf", "fro", "nuc", 2):
    given = np.inf if order == "inf" else order
    shapes = () if order in ("nuc", 2) else None
    case(
        "norm", lambda x, o=given: ops.norm(x, o, axis=(1, 2)), normal(2, 3, 4), label=f"matrix {order}", shapes=shapes
    )
case("argpartition", lambda x: ops.sum(ops.argpartition(x, 2)[..., :2], -1), OTHERS, shapes=ANY)
case("argpartition", lambda x: ops.argpartition(x, 2)[..., 2], OTHERS, label="element", shapes=ANY)
for label, array in (("float32", OTHERS), ("int32", np.argsort(OTHERS).astype("int32"))):
    case("top_k", lambda x: ops.top_k(x, 3), array, label=label, shapes=((None, 5),))
case("in_top_k", lambda t, p: ops.in_top_k(t, p, 2), whole(0, 5, 4), OTHERS)
case("bincount", lambda x: ops.bincount(x, minlength=8), whole(0, 8, 4, 6), label="rows")
case("bincount", lambda x, w: ops.bincount(x, w, minlength=8), whole(0, 8, 9), np.abs(normal(9)), label="weights")
case("histogram", lambda x: ops.histogram(x, 4, (-2.0, 2.0)), normal(20), label="range")
case("histogram", lambda x: ops.histogram(x, 5), normal(20))
case("digitize", lambda x: ops.digitize(x, np.array([-1.0, 0.0, 1.5], "float32")), OTHERS, shapes=ANY)
case("searchsorted", lambda x: ops.searchsorted(np.array([-1.0, 0.0, 1.5], "float32"), x), OTHERS[:, 0])
# Of a sequence of a dynamic length, Keras returns int32 alone and int64 in a graph.
case("searchsorted", lambda x: ops.searchsorted(ops.sort(x), x, side="right"), normal(7), label="computed", shapes=())
case("unique", lambda x: ops.unique(x), whole(0, 5, 9))
case("nonzero", lambda x: ops.nonzero(x > 0)[0], normal(9), label="vector")
case("nonzero", lambda x: ops.stack(ops.nonzero(x)), WHOLE, shapes=ANY)
case("isin", lambda x: ops.isin(x, np.array([1, 3, -4], "int32")), WHOLE, shapes=ANY)
case("diff", lambda x: ops.diff(x, axis=-1), OTHERS, shapes=ANY)
case("diff", lambda x: ops.diff(x, n=2, axis=-1), WHOLE, label="second of int32")
case("trapezoid", lambda x: ops.trapezoid(x, axis=-1), OTHERS, shapes=ANY)
case("corrcoef", ops.corrcoef, OTHERS)
for mode in ("valid", "same", "full"):
    case("correlate", lambda x, y, m=mode: ops.correlate(x, y, m), normal(9), normal(4), label=mode, shapes=())
for name in ("segment_max", "segment_min", "segment_prod", "segment_sum"):
    function, ids = getattr(ops, name), np.array([0, 0, 1, 3], "int32")
    case(name, lambda x, i, of=function: of(x, i, num_segments=5), OTHERS, ids, label="float32")
    case(name, lambda x, i, of=function: of(x, i, num_segments=5), WHOLE, ids, label="int32")
    case(name, lambda x, i, of=function: of(x, i, sorted=True), OTHERS, ids, label="sorted")
