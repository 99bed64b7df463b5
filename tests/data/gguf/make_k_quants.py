"""Writes k_quants.npz: numbers, and their super-blocks as ggml makes them. `python make_k_quants.py libggml-base.so`.

The library is part of the npm package `@node-llama-cpp/linux-x64`, and of every build of llama.cpp.
"""

import ctypes
import pathlib
import sys

import numpy as np

SIZES = {"q4_K": 144, "q5_K": 176, "q6_K": 210}


def main():
    library = ctypes.CDLL(sys.argv[1])
    random = np.random.default_rng(0)
    rows = [random.normal(0, 0.02, (4, 512)), random.standard_t(3, (4, 512)), random.normal(1, 1, (4, 512))]
    rows = np.concatenate(rows).astype("float32")
    found = {"rows": rows}
    for kind, size in SIZES.items():
        blocks = np.zeros((len(rows), rows.shape[1] // 256 * size), "uint8")
        pointers = [ctypes.c_void_p(each.ctypes.data) for each in (rows, blocks)]
        getattr(library, f"quantize_row_{kind}_ref")(*pointers, ctypes.c_int64(rows.size))
        found[kind.upper()] = blocks
    np.savez_compressed(pathlib.Path(__file__).parents[1] / "k_quants.npz", **found)


if __name__ == "__main__":
    main()
