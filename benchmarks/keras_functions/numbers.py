"""Functions of numbers one by one, or of two."""

import numpy as np
from keras import ops

from .case import ANY, BOOLS, DIVISORS, FLOATS, OTHER_BOOLS, OTHERS, PAIR, WHOLE, case, each, whole

_UNARY = (
    "abs absolute angle arctan arcsinh cbrt ceil conj conjugate copy cos cosh deg2rad exp exp2 expm1 fabs floor imag "
    "isfinite isinf isnan isneginf isposinf isreal nan_to_num negative rad2deg real round sign signbit sin sinc sinh square "
    "tan tanh trunc"
)
# Keras does not have these for booleans.
_OF_NUMBERS = ("conj", "conjugate", "negative", "real", "sign")
_OF_POSITIVES = "log log10 log1p log2 reciprocal rsqrt sqrt"
for label, array in (("float32", FLOATS), ("int32", WHOLE), ("bool", BOOLS)):
    names = [name for name in _UNARY.split() if label != "bool" or name not in _OF_NUMBERS]
    # That of whole numbers but 0 is rounding alone.
    values = {"sinc": np.maximum(array, 0)} if label == "int32" else {}
    for name in names:
        each(name, values.get(name, array), label=label, shapes=ANY)
each("i0", FLOATS, shapes=ANY)
each("erf erfc", FLOATS, shapes=ANY)
each(_OF_POSITIVES, np.abs(FLOATS) + np.float32(0.01), label="float32", shapes=ANY)
each(_OF_POSITIVES, np.abs(WHOLE) + 1, label="int32", shapes=ANY)
each("arccos arcsin arctanh erfinv", np.tanh(0.5 * FLOATS), shapes=ANY)
each("arccosh", np.abs(FLOATS) + 1, label="float32", shapes=ANY)
case("logical_not", ops.logical_not, BOOLS, label="bool", shapes=ANY)
case("logical_not", ops.logical_not, FLOATS, label="float32", shapes=ANY)
case("clip", lambda x: ops.clip(x, -1.0, 0.5), FLOATS, label="float32", shapes=ANY)
case("clip", lambda x: ops.clip(x, -2, 3), WHOLE, label="int32", shapes=ANY)
case("saturate_cast", lambda x: ops.saturate_cast(200 * x, "int8"), FLOATS, shapes=ANY)
for dtype in ("int32", "bool", "float16", "int8", "uint8"):
    case("cast", lambda x, dtype=dtype: ops.cast(ops.abs(x), dtype), FLOATS, label=f"to {dtype}", shapes=ANY)
case("cast", lambda x: ops.cast(x, "float32"), WHOLE, label="of int32", shapes=ANY)
case("view", lambda x: ops.view(x, "int32"), FLOATS, label="to int32", shapes=ANY)
case("view", lambda x: ops.view(x, "float32"), 1_000_000 * WHOLE, label="of int32", shapes=ANY)

_BINARY = "add fmax fmin maximum minimum multiply subtract"
_RATIOS = "arctan2 divide divide_no_nan floor_divide fmod hypot logaddexp logaddexp2 mod true_divide"
_COMPARISONS = "equal greater greater_equal less less_equal not_equal"
for label, pair in (("float32", (FLOATS, OTHERS)), ("int32", (WHOLE, DIVISORS))):
    each(_BINARY, *pair, label=label, shapes=PAIR)
    each(_RATIOS, *pair, label=label, shapes=PAIR)
    each(_COMPARISONS, *pair, label=label, shapes=PAIR)
_INTEGERS = "add equal floor_divide greater less_equal maximum minimum mod multiply subtract"
_BITS = "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor"
for dtype in ("int8", "int64", "uint8"):
    each(_INTEGERS, np.abs(WHOLE).astype(dtype), np.abs(DIVISORS).astype(dtype), label=dtype, shapes=())
    each(_BITS, np.abs(WHOLE).astype(dtype), np.abs(DIVISORS).astype(dtype), label=dtype, shapes=())
each("isclose", FLOATS, FLOATS + np.float32(1e-7), shapes=PAIR)
each("allclose", FLOATS, FLOATS, shapes=PAIR)
each("equal not_equal", BOOLS, OTHER_BOOLS, label="bool", shapes=PAIR)
each("logical_and logical_or logical_xor", BOOLS, OTHER_BOOLS, label="bool", shapes=PAIR)
each("logical_and logical_or logical_xor", WHOLE, DIVISORS, label="int32", shapes=PAIR)
each("heaviside nextafter", FLOATS, OTHERS, shapes=PAIR)
case("power", ops.power, np.abs(FLOATS), OTHERS, label="float32", shapes=PAIR)
case("power", lambda x: ops.power(x, 3), WHOLE, label="int32", shapes=ANY)
each("ldexp", FLOATS, whole(-3, 4, 4, 5), shapes=PAIR)
each("gcd lcm", WHOLE, DIVISORS, shapes=PAIR)
each("bitwise_and bitwise_or bitwise_xor", WHOLE, DIVISORS, shapes=PAIR)
each("bitwise_invert bitwise_not", WHOLE, shapes=ANY)
each("bitwise_left_shift bitwise_right_shift left_shift right_shift", WHOLE, whole(0, 5, 4, 5), shapes=PAIR)
case("polar", lambda r, a: ops.view_as_real(ops.polar(r, a)), np.abs(FLOATS), OTHERS, shapes=PAIR)
case("view_as_complex", lambda x: ops.real(ops.view_as_complex(x)), OTHERS[:, :2])
case("view_as_real", lambda x: ops.view_as_real(ops.view_as_complex(x)), OTHERS[:, :2])
