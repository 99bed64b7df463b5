"""Exports small models of GGUF files with their blocks: `gguf_worker.py OUT_DIRECTORY`."""

import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from worker_cases import run_cases

from keras_transformer import checkpoints
from keras_transformer.export import ExportOptions, GenerationOptions, Gguf, export
from keras_transformer.export.bundle.manifest import read_manifest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checkpoints"))
from gguf_files import F32, LLAMA, gguf_bytes, tensor_info

WORDS, INNER = 96, 128
KINDS = ("Q4_0", "Q4_1", "Q8_0", "Q5_1")
# Of blocks that others have too.
EXHAUSTIVE = ("Q4_0", "Q5_1", "Q5_K")


def float_file(path, width):
    """A Llama of one block, whose embedding is its head too."""
    inner = 2 * width if width > INNER else INNER
    sizes = {"token_embd": (width, WORDS), "output_norm": (width,)}
    block = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (width, width))
    block |= {"ffn_gate": (width, inner), "ffn_up": (width, inner), "ffn_down": (inner, width)}
    block |= {"attn_norm": (width,), "ffn_norm": (width,)}
    sizes |= {f"blk.0.{name}": each for name, each in block.items()}
    starts = np.cumsum([0, *(4 * np.prod(each) for each in sizes.values())])
    infos = [
        tensor_info(f"{name}.weight", each, F32, start)
        for (name, each), start in zip(sizes.items(), starts, strict=False)
    ]
    values = np.random.default_rng(0).normal(0, 0.1, starts[-1] // 4).astype("float32")
    values[2 * width : 2 * width + 32] = 0  # A block without a scale.
    settings = {"llama.embedding_length": width, "llama.feed_forward_length": inner, "llama.context_length": 32}
    path.write_bytes(gguf_bytes(LLAMA | settings, infos, values.tobytes()))


def load(out, kind, width=64):
    """The model of a file of one type of blocks."""
    if not (out / f"{width}.gguf").exists():
        float_file(out / f"{width}.gguf", width)
    model = checkpoints.from_gguf(out / f"{width}.gguf", verbose=0)
    checkpoints.to_gguf(model, out / f"{kind}.gguf", quantize=kind, verbose=0)
    return checkpoints.from_gguf(out / f"{kind}.gguf", verbose=0)


def record(out, name, formats, kind, width=64, **options):
    model = load(out, kind, width)
    export(model, out / name, formats, quantize="gguf", progress=False, options=ExportOptions(**options))
    artifacts = read_manifest(out / name).artifacts
    return {each: [artifacts[each].weights.to_dict(), artifacts[each].behavior] for each in formats}


def kept(out):
    """A weight that was trained further, and stays float."""
    model = load(out, "Q4_0")
    weight = next(each for each in model.variables if each.path.endswith("query/kernel"))
    weight.assign_add(np.full(weight.shape, 0.01, "float32"))
    careful = Gguf(keep_float=("*/query/kernel",))
    options = ExportOptions(generation=False)
    export(model, out / "kept", ["onnx", "saved_model"], quantize=careful, progress=False, options=options)
    return read_manifest(out / "kept").artifact("saved_model").weights.to_dict()


def main():
    out = pathlib.Path(sys.argv[1])
    both, whole = ["onnx", "tflite"], {"generation": False}
    steps = {"generation": GenerationOptions(prefill_buckets=(8,))}
    cases = {kind: lambda kind=kind: record(out, kind, both, kind, **whole) for kind in KINDS}
    cases |= {kind: lambda kind=kind: record(out, kind, ["onnx"], kind, 256, **whole) for kind in ("Q5_K", "Q4_K_M")}
    cases |= {"decoder": lambda: record(out, "decoder", both, "Q4_1", **steps), "kept": lambda: kept(out)}
    run_cases(out, cases, exhaustive=EXHAUSTIVE)


if __name__ == "__main__":
    main()
