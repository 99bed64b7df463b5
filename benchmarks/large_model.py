"""Seconds, peak memory and size of the quantized export of a Llama of 1.1 billion parameters, from shards in bfloat16.

    python benchmarks/large_model.py                          # int8 and weight_int4, ONNX and TFLite
    python benchmarks/large_model.py --formats onnx --layers 4
    python benchmarks/large_model.py --dtype float32          # with the model in float32 in memory

The checkpoint has random weights. Each export runs in a process of its own, which loads the checkpoint first: the peak is
that of the process, with what it maps from files, and of its child processes.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import dataclasses
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import ml_dtypes
import numpy as np
from measure import Table, arguments, versions

FORMATS, PRECISIONS = ["onnx", "tflite"], ["int8", "weight_int4"]
# The sizes of TinyLlama.
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "max_position_embeddings": 2048,
    "num_attention_heads": 32,
    "num_hidden_layers": 22,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 32000,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2}
TINY |= {"num_hidden_layers": 2, "vocab_size": 96, "max_position_embeddings": 128}
SHARD_BYTES = 10**9


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=CONFIG["num_hidden_layers"])
    parser.add_argument("--formats", nargs="+", default=FORMATS)
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS)
    parser.add_argument("--dtype", default="bfloat16", help="of the model in memory")
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="where the checkpoint is kept; a temporary folder by default"
    )
    parser.add_argument("--verbose", action="store_true", help="show the steps, with the memory in use")
    parser.add_argument("--worker", metavar="JSON", help=argparse.SUPPRESS)
    return parser.parse_args()


def tensors(config):
    """The names and shapes of the tensors of a checkpoint."""
    width, hidden, words = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    shared = width // config["num_attention_heads"] * config["num_key_value_heads"]
    yield "model.embed_tokens.weight", (words, width)
    for layer in range(config["num_hidden_layers"]):
        part = f"model.layers.{layer}"
        for name, size in (("q", width), ("k", shared), ("v", shared), ("o", width)):
            yield f"{part}.self_attn.{name}_proj.weight", (size, width)
        for name, shape in (("gate", (hidden, width)), ("up", (hidden, width)), ("down", (width, hidden))):
            yield f"{part}.mlp.{name}_proj.weight", shape
        yield f"{part}.input_layernorm.weight", (width,)
        yield f"{part}.post_attention_layernorm.weight", (width,)
    yield "model.norm.weight", (width,)
    yield "lm_head.weight", (words, width)


def write_checkpoint(folder, config):
    """Writes random weights in bfloat16, in shards, one of which is in memory at a time."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    random, shard, shards, size = np.random.default_rng(0), {}, [], 0
    for name, shape in tensors(config):
        scale = shape[-1] ** -0.5
        values = random.standard_normal(shape, "float32") * np.float32(scale) if len(shape) > 1 else np.ones(shape)
        shard[name] = values.astype(ml_dtypes.bfloat16)
        size += shard[name].nbytes
        if size > SHARD_BYTES:
            shards.append(_flush(folder, shard, len(shards), save_file))
            shard, size = {}, 0
    shards.append(_flush(folder, shard, len(shards), save_file))
    files = {name: file for file, names in shards for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    (folder / "config.json").write_text(json.dumps(config))


def _flush(folder, shard, number, save_file):
    name = f"model-{number + 1:05}.safetensors"
    save_file(shard, folder / name)
    return name, list(shard)


def work(case):
    """Exports the checkpoint in this process; prints the figures as JSON."""
    from keras_transformer.checkpoints import from_huggingface
    from keras_transformer.export import export, request
    from keras_transformer.export.data.limits import LIMITS

    request.LARGEST_RUN = 0  # With fewer layers too.
    # Random weights choose among tokens of almost equal probability: the share is reported, and refuses nothing.
    for name, limits in LIMITS.items():
        LIMITS[name] = dataclasses.replace(limits, top_share=0.0, greedy_share=0.0)
    start = time.perf_counter()
    model = from_huggingface(case["checkpoint"], dtype=case["dtype"], verbose=0)
    loading = time.perf_counter() - start
    progress = (lambda line: print(f"{_memory()}  {line}", file=sys.stderr, flush=True)) if case["verbose"] else False
    with tempfile.TemporaryDirectory(dir=case["folder"]) as folder:
        bundle = pathlib.Path(folder, "bundle")
        report = export(model, bundle, [case["format"]], quantize=case["precision"], progress=progress)
        artifact = report[case["format"]]
    peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    behavior = {name: artifact.behavior[name] for name in ("perplexity", "divergence", "top_share")}
    figures = {"loading s": loading, "seconds": time.perf_counter() - start, "peak GB": peak * 1024 / 1e9}
    print(json.dumps(figures | {"file GB": artifact.size / 1e9, **behavior}))


def _memory():
    """Megabytes in use: anonymous, and mapped from files."""
    with open("/proc/self/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    return " ".join(f"{name} {int(fields[name].split()[0]) // 1000:5} MB" for name in ("VmHWM", "RssAnon", "RssFile"))


def measured(**case):
    """The figures of `work` in a process of its own, or its error."""
    errors = None if case["verbose"] else subprocess.PIPE
    command = [sys.executable, __file__, "--worker", json.dumps(case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    if done.returncode:
        return {"error": ((done.stderr or "").strip().splitlines() or ["ended"])[-1][:100]}
    return {name: round(value, 4) for name, value in json.loads(done.stdout.splitlines()[-1]).items()}


def main():
    options = parse()
    if options.worker:
        work(json.loads(options.worker))
        return
    config = CONFIG | {"num_hidden_layers": options.layers} | (TINY if options.tiny else {})
    packages = versions("keras-transformer", "keras", "tensorflow", "onnxruntime", "ai-edge-litert")
    count = sum(int(np.prod(shape)) for _, shape in tensors(config))
    table = Table(f"Quantized export of a Llama of {count / 1e9:.3g} billion parameters in {options.dtype}", packages)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = pathlib.Path(options.checkpoint or pathlib.Path(folder, "checkpoint"))
        if not (checkpoint / "config.json").exists():
            write_checkpoint(checkpoint, config)
        for format in options.formats:
            for precision in options.precisions:
                case = {"format": format, "precision": precision, "dtype": options.dtype, "verbose": options.verbose}
                row = measured(checkpoint=str(checkpoint), folder=folder, **case)
                table.add(format=format, precision=precision, **row)
    table.finish(options.json)


if __name__ == "__main__":
    main()
