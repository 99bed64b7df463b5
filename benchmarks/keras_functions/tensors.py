"""Functions that make tensors, move, join, split and select parts of them, or multiply them."""

import numpy as np
from keras import ops

from .case import ANY, BOOLS, FLOATS, OTHERS, WHOLE, case, each, normal, whole

X = normal(4, 3, 2)
# Made of sizes or of numbers.
for name in ("bartlett", "blackman", "hamming", "hanning", "kaiser"):
    options = (14.0,) if name == "kaiser" else ()
    case(name, lambda x, of=name, o=options: x * getattr(ops, of)(5, *o), OTHERS)
case("arange", lambda x: x + ops.arange(5, dtype="float32"), OTHERS)
case("arange", lambda x: ops.arange(ops.shape(x)[0]), OTHERS, label="dynamic", shapes=ANY)
case("array", lambda x: ops.array(x), OTHERS, shapes=ANY)
case("convert_to_tensor", lambda x: ops.convert_to_tensor(x), OTHERS, shapes=ANY)
case("convert_to_numpy", lambda x: x + ops.convert_to_numpy(np.arange(5, dtype="float32")), OTHERS)
for name in ("empty", "ones", "zeros"):
    case(name, lambda x, of=name: x * 0 + getattr(ops, of)((5,)) * 0, OTHERS)
for name in ("empty_like", "ones_like", "zeros_like"):
    scale = 0 if name == "empty_like" else 1
    case(name, lambda x, of=name, s=scale: s * getattr(ops, of)(x) + x, OTHERS, shapes=ANY)
case("full", lambda x: x + ops.full((5,), 2.0), OTHERS)
case("full_like", lambda x: ops.full_like(x, 2.0), OTHERS, shapes=ANY)
case("eye", lambda x: x @ ops.eye(5, 3), OTHERS)
case("identity", lambda x: x @ ops.identity(5), OTHERS)
case("tri", lambda x: x @ ops.tri(5, 4, 1), OTHERS)
case("linspace", lambda x: ops.linspace(x, x + 1, 4), OTHERS[:, 0])
case("logspace", lambda x: ops.logspace(x, x + 1, 4), OTHERS[:, 0])
case("geomspace", lambda x: ops.geomspace(x, x + 1, 4), np.abs(OTHERS[:, 0]) + 1)
case("vander", lambda x: ops.vander(x, 4), normal(4))
case("meshgrid", lambda x, y: ops.meshgrid(x, y), normal(4), normal(3), shapes=((None,), (3,)))
# Moved.
for name in ["fliplr", "flipud", "flip", "ravel", "transpose", "squeeze"]:
    array = OTHERS[:, None] if name == "squeeze" else OTHERS
    case(name, (lambda x: ops.squeeze(x, 1)) if name == "squeeze" else getattr(ops, name), array)
case("rot90", ops.rot90, X)
case("roll", lambda x: ops.roll(x, 2, axis=1), X)
case("roll", lambda x: ops.roll(x, 1), OTHERS, label="all axes")
case("moveaxis", lambda x: ops.moveaxis(x, 0, -1), X)
case("swapaxes", lambda x: ops.swapaxes(x, 0, 2), X)
case("rearrange", lambda x: ops.rearrange(x, "b h w -> b (w h)"), X)
case("reshape", lambda x: ops.reshape(x, (-1, 6)), X)
case("expand_dims", lambda x: ops.expand_dims(x, (1, -1)), X)
case("broadcast_to", lambda x: ops.broadcast_to(x[:, :, None], (*ops.shape(x), 3)), OTHERS)
case("repeat", lambda x: ops.repeat(x, 3, axis=1), X)
case("repeat", lambda x: ops.repeat(x, np.array([1, 0, 2]), axis=1), X, label="each its own")
case("tile", lambda x: ops.tile(x, (2, 1, 3)), X)
for mode in ("constant", "reflect", "symmetric"):
    case("pad", lambda x, m=mode: ops.pad(x, ((0, 0), (1, 2), (1, 0)), m), X, label=mode)
case("tril", lambda x: ops.tril(x, 1), X)
case("triu", lambda x: ops.triu(x, -1), X)
for offset in (0, 1, -1):
    each_label = f"offset {offset}"
    # Where the length is dynamic, TensorFlow infers a wrong size of a matrix with another diagonal.
    sizes = {"shapes": ()} if offset else {}
    case("diag", lambda x, k=offset: ops.diag(x, k), normal(4), label=f"vector, {each_label}", **sizes)
    case("diag", lambda x, k=offset: ops.diag(x, k), normal(4, 4), label=f"matrix, {each_label}", shapes=((None, 4),))
    case("diagflat", lambda x, k=offset: ops.diagflat(x, k), normal(2, 2), label=each_label, **sizes)
    case("diagonal", lambda x, k=offset: ops.diagonal(x, k, 1, 2), normal(3, 4, 5), label=each_label)
    case("trace", lambda x, k=offset: ops.trace(x, k, 1, 2), normal(3, 4, 5), label=each_label)
case("depth_to_space", lambda x: ops.depth_to_space(x, 2), normal(2, 3, 4, 8))
case("space_to_depth", lambda x: ops.space_to_depth(x, 2), normal(2, 4, 6, 2))
# Joined and split.
each("append", OTHERS, OTHERS)
for name in ["concatenate", "stack", "hstack", "vstack", "dstack"]:
    case(name, lambda x, y, of=name: getattr(ops, of)([x, y]), OTHERS, FLOATS)
for name, array in {"vsplit": X, "hsplit": normal(3, 4), "dsplit": X}.items():
    case(name, lambda x, of=name: getattr(ops, of)(x, 2), array, shapes=() if name == "vsplit" else None)
case("split", lambda x: ops.split(x, [1, 3], axis=1), OTHERS)
case("array_split", lambda x: ops.array_split(x, 2, axis=1), OTHERS)
case("unstack", lambda x: ops.unstack(x, axis=1), X)
# Selected.
case("where", lambda c, x, y: ops.where(c, x, y), BOOLS, FLOATS, OTHERS)
case("select", lambda x: ops.select([x > 1, x < 0], [x, -2 * x], 5.0), FLOATS)
case("take", lambda x, i: ops.take(x, i, axis=0), OTHERS, whole(-4, 4, 4))
case("take", lambda x: ops.take(x, np.array([[3, 1]]), axis=1), OTHERS, label="constant")
case("take_along_axis", lambda x, i: ops.take_along_axis(x, i, axis=1), OTHERS, whole(-5, 5, 4, 3))
case("get_item", lambda x: ops.get_item(x, (slice(None), 1, Ellipsis, None)), X)
case("slice", lambda x: ops.slice(x, (0, 1, 0), (2, 2, 2)), X)
case("slice", lambda x, i: ops.slice(x, i, (2, 2)), OTHERS, np.array([1, 2], "int32"), label="computed", shapes=())
case("slice_update", lambda x, y: ops.slice_update(x, (1, 2), y), OTHERS, normal(2, 2), shapes=((None, 5), (2, 2)))
case("scatter", lambda i, x: ops.scatter(i, x, (6, 2)), np.array([[5], [0], [5], [2]], "int32"), normal(4, 2))
for reduction in (None, "add", "max", "min", "mul"):
    case(
        "scatter_update",
        lambda x, i, u, r=reduction: ops.scatter_update(x, i, u, r),
        *(normal(4, 2), np.array([[2], [0]], "int32"), normal(2, 2)),
        label=str(reduction),
        shapes=((None, 2), (2, 1), (2, 2)),
    )
case("unravel_index", lambda x: ops.unravel_index(x, (3, 4)), whole(0, 12, 5))
case("extract_sequences", lambda x: ops.extract_sequences(x, 4, 2), normal(3, 12))
# Multiplied.
A, B = normal(3, 4, 5), normal(3, 5, 2)
case("matmul", ops.matmul, A, B)
case("matmul", ops.matmul, whole(-9, 9, 3, 4), whole(-9, 9, 4, 2), label="int32", shapes=((None, 4), (4, 2)))
case("dot", ops.dot, OTHERS, normal(5, 3), shapes=((None, 5), (5, 3)))
case("vdot", ops.vdot, normal(5), normal(5))
case("inner", ops.inner, OTHERS, normal(3, 5), shapes=((None, 5), (3, 5)))
case("outer", ops.outer, normal(4), normal(3), shapes=((None,), (3,)))
case("tensordot", lambda x, y: ops.tensordot(x, y, axes=1), A, normal(5, 2), shapes=((None, 4, 5), (5, 2)))
case("einsum", lambda x, y: ops.einsum("bij,bjk->bki", x, y), A, B)
case("einsum", lambda x: ops.einsum("bii->b", x), normal(3, 4, 4), label="trace")
case("kron", ops.kron, OTHERS, normal(2, 3), shapes=((None, 5), (2, 3)))
case("cross", ops.cross, OTHERS[:, :3], FLOATS[:, :3])
case("cross", ops.cross, OTHERS[:, :2], FLOATS[:, :2], label="of two")
case("cdist", ops.cdist, normal(4, 3), normal(5, 3), shapes=((None, 3), (5, 3)))
# Told.
case("shape", lambda x: ops.stack([ops.cast(each, "int32") for each in ops.shape(x)]), X)
case("size", lambda x: x * ops.cast(ops.size(x), "float32"), OTHERS)
case("ndim", lambda x: x * ops.ndim(x), OTHERS)
case("dtype", lambda x: ops.cast(x, ops.dtype(OTHERS)), WHOLE)
case("is_tensor", lambda x: x * 2.0 if ops.is_tensor(x) else x, OTHERS)
