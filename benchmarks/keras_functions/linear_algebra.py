"""Linear algebra, and Fourier transforms."""

import numpy as np
from keras import ops

from .case import case, normal

M = normal(3, 4, 4) + 3 * np.eye(4, dtype="float32")
POSITIVE = (M @ M.swapaxes(1, 2) / 4).astype("float32")
RIGHT = normal(3, 4, 2)
case("cholesky", ops.cholesky, POSITIVE)
case("cholesky", lambda x: ops.cholesky(x, upper=True), POSITIVE, label="upper")
case("cholesky_inverse", ops.cholesky_inverse, np.tril(M))
for name in ("det", "inv", "logdet", "slogdet", "pinv", "matrix_rank"):
    case(name, getattr(ops, name), POSITIVE if name == "logdet" else M)
case("lu_factor", ops.lu_factor, M[0], shapes=())
case("solve", ops.solve, M, RIGHT)
case("solve", ops.solve, M, RIGHT[..., 0], label="vector")
for lower in (False, True):
    case(
        "solve_triangular", lambda a, b, o=lower: ops.solve_triangular(a, b, lower=o), M, RIGHT, label=f"lower={lower}"
    )
case("lstsq", ops.lstsq, normal(6, 4), normal(6, 2), shapes=())
for mode in ("reduced", "complete"):
    case("qr", lambda x, m=mode: ops.qr(x, m), normal(3, 5, 4), label=mode)
case("svd", lambda x: ops.svd(x, compute_uv=False), normal(3, 5, 4), label="values")
case("svd", lambda x: _product_of_svd(*ops.svd(x, full_matrices=False)), normal(3, 5, 4), label="vectors")
case("eigh", lambda x: ops.eigh(x)[0], POSITIVE, label="values")
case("eigh", lambda x: _product_of_eigh(*ops.eigh(x)), POSITIVE, label="vectors")
case("eig", lambda x: ops.real(ops.eig(x)[0]), POSITIVE)
case("jvp", lambda x: ops.jvp(lambda y: ops.sin(y) * y, (x,), (x,))[1], normal(4, 5))


def _product_of_svd(u, s, v):
    return ops.matmul(u * s[:, None, :], v)


def _product_of_eigh(values, vectors):
    return ops.matmul(vectors * values[:, None, :], ops.swapaxes(vectors, 1, 2))


WAVES, PLANES = (normal(3, 16), normal(3, 16)), (normal(2, 4, 8), normal(2, 4, 8))
for name in ("fft", "fft2", "ifft2"):
    case(name, lambda x, y, of=name: getattr(ops, of)((x, y)), *(WAVES if name == "fft" else PLANES))
case("rfft", lambda x: ops.rfft(x), WAVES[0])
case("rfft", lambda x: ops.rfft(x, 12), WAVES[0], label="length")
case("irfft", lambda x, y: ops.irfft((x, y)), normal(3, 9), normal(3, 9))
case("stft", lambda x: ops.stft(x, 16, 4, 16), normal(2, 64))
case("istft", lambda x, y: ops.istft((x, y), 16, 4, 16), normal(2, 13, 9), normal(2, 13, 9))
