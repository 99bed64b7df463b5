"""The processes of `zoo.py`: `make NAME FOLDER TINY`, `load RIVAL FOLDER`, `run NAME FOLDER SETTINGS`."""

import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from long_worker import forget_peak, memory
from measure import limit_threads, milliseconds, ratio, take_turns, timed

# The published sizes, and the changes in the tiny version.
_BERT = {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}
_MINILM = {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
_TINY = {"num_hidden_layers": 1, "hidden_size": 24, "num_attention_heads": 2, "intermediate_size": 32}
CONFIGS = {
    "minilm_l6": ("BertModel", "BertConfig", _MINILM, _TINY),
    "bert_base": ("BertModel", "BertConfig", _BERT, _TINY),
    "distilgpt2": ("GPT2LMHeadModel", "GPT2Config", {"n_layer": 6}, {"n_layer": 1, "n_embd": 24, "n_head": 2}),
    "t5_small": ("T5ForConditionalGeneration", "T5Config", {}, {"num_layers": 1, "d_model": 24, "d_ff": 32}),
    "vit_s16": (
        "ViTForImageClassification",
        "ViTConfig",
        {"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536, "num_labels": 1000},
        {**_TINY, "image_size": 32},
    ),
}


def make(name, folder, tiny):
    """Writes a checkpoint; returns its size."""
    import torch
    import transformers

    model, config, full, toy = CONFIGS[name]
    torch.manual_seed(0)
    getattr(transformers, model)(getattr(transformers, config)(**{**full, **(toy if tiny else {})})).save_pretrained(
        folder
    )
    size = sum(file.stat().st_size for file in pathlib.Path(folder).glob("*.safetensors"))
    return {"checkpoint_mb": round(size / 2**20, 1)}


def load(rival, folder):
    """Returns the time and memory of loading."""
    if rival == "ours":
        from keras_transformer.checkpoints import from_huggingface

        def read():
            return from_huggingface(folder, verbose=0)
    else:
        import transformers

        name = json.loads(pathlib.Path(folder, "config.json").read_text())["architectures"][0]
        cls = getattr(transformers, name)  # Imports the model's module, outside of the measurement.

        def read():
            # Memory-mapped pages count only after they are read.
            model = cls.from_pretrained(folder)
            return [parameter.sum() for parameter in model.parameters()], model

    forget_peak()
    before, start = memory("VmRSS"), time.perf_counter()
    kept = read()
    seconds = time.perf_counter() - start
    del kept
    return {"seconds": round(seconds, 2), "peak_mb": round(memory("VmHWM") - before)}


def inputs_of(name, tiny):
    """Returns `(ours, transformers')`, dicts of arrays."""
    generator = np.random.default_rng(0)
    if name == "vit_s16":
        images = generator.normal(size=(1, *(2 * [32 if tiny else 224]), 3)).astype("float32")
        return {"images": images}, {"pixel_values": images.transpose(0, 3, 1, 2)}
    length, target = (8, 4) if tiny else (128, 32)
    tokens, mask = generator.integers(5, 1000, (1, length)).astype("int32"), np.ones((1, length), bool)
    theirs = {"input_ids": tokens, "attention_mask": mask}
    if name == "t5_small":
        written = generator.integers(5, 1000, (1, target)).astype("int32")
        ours = {"source_token_ids": tokens, "source_padding_mask": mask, "target_token_ids": written}
        return {**ours, "target_padding_mask": np.ones_like(written, bool)}, {**theirs, "decoder_input_ids": written}
    ours = {"token_ids": tokens, "padding_mask": mask}
    return (ours if name == "distilgpt2" else {**ours, "segment_ids": np.zeros_like(tokens)}), theirs


def rivals_of(folder, name, settings):
    """Returns a dict of name to a function that returns the first output."""
    import keras
    import tensorflow as tf
    import torch
    import transformers

    from keras_transformer.checkpoints import from_huggingface
    from keras_transformer.export import ExportOptions, export, load

    limit_threads(settings["threads"])
    ours, theirs = inputs_of(name, settings["tiny"])
    theirs = {key: torch.tensor(value) for key, value in theirs.items()}
    model = from_huggingface(folder, verbose=0)
    peer = getattr(transformers, CONFIGS[name][0]).from_pretrained(folder).eval()
    compiled = torch.compile(peer)
    tensors = {key: tf.constant(value) for key, value in ours.items()}
    function = tf.function(lambda: model(tensors if len(tensors) > 1 else next(iter(tensors.values())), training=False))

    def run_torch(module):
        with torch.inference_mode():
            return module(**theirs)[0].numpy()

    bundle = pathlib.Path(folder, "bundle")
    export(model, bundle, options=ExportOptions(generation=False))
    rivals = {
        "torch eager": lambda: run_torch(peer),
        "torch.compile": lambda: run_torch(compiled),
        "Keras": lambda: _first(keras.tree.map_structure(np.asarray, function())),
    }
    for backend in ("saved_model", "tflite", "onnx"):
        loaded = load(bundle, backend, num_threads=settings["threads"])
        rivals[backend] = lambda loaded=loaded: _first(loaded(ours))
    return rivals


def _first(outputs):
    """Returns the output that corresponds to torch's first one."""
    if isinstance(outputs, dict):
        return outputs["tokens"] if "tokens" in outputs else next(iter(outputs.values()))
    return outputs


def run(name, folder, settings):
    """Returns rows of latencies."""
    rivals = rivals_of(folder, name, settings)
    expected = rivals["torch eager"]()
    differences = {
        key: float(np.max(np.abs(function() - expected)) / np.max(np.abs(expected))) for key, function in rivals.items()
    }
    turns = take_turns({key: timed(function) for key, function in rivals.items()}, settings["rounds"])
    return [
        {
            "rival": key,
            "ms": milliseconds(turns[key]),
            "eager": ratio(turns[key], turns["torch eager"])["ratio"],
            "compiled": ratio(turns[key], turns["torch.compile"])["ratio"],
            "difference": f"{differences[key]:.1e}",
        }
        for key in rivals
    ]


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    words[-1:] = [json.loads(words[-1])] if command != "load" else words[-1:]
    print(json.dumps({"make": make, "load": load, "run": run}[command](*words)))
