"""Exports tasks of KerasHub: `hub_worker.py OUT_DIRECTORY`. The tests in `hub/` use its bundles and KerasHub's texts."""

import functools
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.append(str(pathlib.Path(__file__).parents[2] / "benchmarks"))

import keras_hub
import numpy as np
from keras_hub_tasks import build, classes, greedy_tokens
from worker_cases import run_cases

from keras_transformer.export import ExportOptions, GenerationOptions, export, load
from keras_transformer.export.formats import DEFAULT_FORMATS
from keras_transformer.text import from_keras_hub

PROMPT, OTHER, NEW = "The quick brown fox", "A man", 48
CHAT = (
    "{% for each in messages %}<start_of_turn>{{ each.role }}\n{{ each.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# One row, one bucket, and no loop in the graph: what takes long says nothing more here.
SHORT = GenerationOptions(whole_graph=False, prefill_buckets=(8,), static_length=96)
FIRST = "GPT2CausalLM"


def exported(out, name, formats=DEFAULT_FORMATS, dtype=None, options=SHORT, **arguments):
    task = build(name, dtype)
    report = export(task, out, formats, progress=False, options=ExportOptions(generation=options), **arguments)
    results = {"ratios": {each: report[each].ratio for each in report.artifacts}}
    results |= {prompt: greedy_tokens(task, prompt, NEW) for prompt in (PROMPT, OTHER)}
    return results


def whole(out):
    """A family with the loop in the graph too, whose tokenizer is part of the SavedModel."""
    return exported(out, "LlamaCausalLM", options=GenerationOptions(prefill_buckets=(8,), static_length=96))


def quantized(out):
    return exported(out, "LlamaCausalLM", ["tflite", "onnx"], quantize="int8")


def half(out):
    """A task in bfloat16: the files are those of its float32 twin."""
    return exported(out, "GemmaCausalLM", ["onnx"], dtype="bfloat16")


def adapted(out):
    """A task that was saved as a preset and read back, with a chat template and LoRA weights, which are merged."""
    preset = str(out.parent / "gemma_preset")
    build("GemmaCausalLM").save_to_preset(preset)
    task = keras_hub.models.CausalLM.from_preset(preset)
    task.compile(sampler="greedy", jit_compile=False)
    task.backbone.enable_lora(2)
    random = np.random.default_rng(1)
    for weight in task.trainable_weights:
        if "lora" in weight.path:
            weight.assign(random.normal(0, 0.5, weight.shape))
    tokenizer = from_keras_hub(task.preprocessor.tokenizer, chat_template=CHAT)
    options = ExportOptions(generation=SHORT)
    report = export(task, out, ["onnx"], tokenizer=tokenizer, progress=False, options=options)
    asked = tokenizer.encode(
        "<start_of_turn>user\nHello<end_of_turn>\n<start_of_turn>model\n", allow_special_tokens=True
    )
    answer = load(out, "onnx").chat("Hello", max_new_tokens=9)
    return {
        "ratios": {"onnx": report["onnx"].ratio},
        PROMPT: greedy_tokens(task, PROMPT, NEW),
        "chat": answer,
        "asked": asked,
    }


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    names = (FIRST, *sorted(set(classes()) - {FIRST}))
    cases = {name: functools.partial(exported, out / name, name) for name in names}
    rest = [*names[1:], "whole", "half", "quantized"]
    for each in (whole, quantized, half, adapted):
        cases[each.__name__] = functools.partial(each, out / each.__name__)
    run_cases(out, cases, exhaustive=rest)
