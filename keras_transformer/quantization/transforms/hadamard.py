"""Hadamard matrices, and orthogonal matrices of any size made of them."""

from __future__ import annotations

import math

import numpy as np


def hadamard(size: int) -> np.ndarray | None:
    """A Hadamard matrix, of 1 and -1 with orthogonal rows, int8 `(size, size)`, or None where no construction here has one.

    Constructions: Sylvester's (twice a smaller one), and both of Paley for a prime q: of q + 1 rows where q is 3 modulo 4,
    and of 2 (q + 1) rows where it is 1.

    Example:

    >>> matrix = hadamard(12)
    >>> bool((matrix.astype(int) @ matrix.T == 12 * np.eye(12)).all()), hadamard(6)
    (True, None)

    Reference: Paley, On Orthogonal Matrices, Journal of Mathematics and Physics 12 (1933).
    """
    if size in (1, 2):
        return np.array([[1, 1], [1, -1]], "int8")[:size, :size]
    if size % 4:
        return None
    if _is_prime(size - 1):
        core = _skew(size - 1)
        return (core + np.eye(size, dtype="int8")).astype("int8")
    if _is_prime(size // 2 - 1) and (size // 2 - 1) % 4 == 1:
        core, identity = _symmetric(size // 2 - 1), np.eye(size // 2, dtype="int8")
        plus, mixed = np.array([[1, 1], [1, -1]], "int8"), np.array([[1, -1], [-1, -1]], "int8")
        return (np.kron(core, plus) + np.kron(identity, mixed)).astype("int8")
    half = hadamard(size // 2)
    return None if half is None else np.kron(np.array([[1, 1], [1, -1]], "int8"), half)


def _is_prime(number):
    return number > 1 and all(number % factor for factor in range(2, math.isqrt(number) + 1))


def _residues(prime):
    """The matrix of Legendre symbols of i - j."""
    squares = {each * each % prime for each in range(1, prime)}
    symbols = np.array([0] + [1 if each in squares else -1 for each in range(1, prime)], "int8")
    return symbols[(np.arange(prime)[:, None] - np.arange(prime)) % prime]


def _bordered(prime, column):
    matrix = np.zeros((prime + 1, prime + 1), "int8")
    matrix[0, 1:], matrix[1:, 0], matrix[1:, 1:] = 1, column, _residues(prime)
    return matrix


def _skew(prime):
    return _bordered(prime, -1)


def _symmetric(prime):
    return _bordered(prime, 1)


def orthogonal(size: int, seed: int = 0) -> np.ndarray:
    """A random orthogonal matrix, float64 `(size, size)`, whose entries are about equally large.

    It is a Hadamard matrix with random signs of its rows where there is one; otherwise the Kronecker product of the largest
    one whose size divides the size, and a random orthogonal matrix.

    Args:
        size: int >= 1.
        seed: int.

    Example:

    >>> matrix = orthogonal(6)
    >>> np.allclose(matrix @ matrix.T, np.eye(6)), np.unique(np.abs(orthogonal(4))).tolist()
    (True, [0.5])
    """
    random = np.random.default_rng(seed)
    found = (hadamard(each) for each in range(size, 0, -1) if size % each == 0)
    regular = next(each for each in found if each is not None)
    inner = len(regular)
    outer, triangle = np.linalg.qr(random.normal(size=(size // inner, size // inner)))
    outer = outer * np.sign(np.diagonal(triangle))
    matrix = np.kron(regular / math.sqrt(inner), outer)
    return random.choice((-1.0, 1.0), size)[:, None] * matrix
