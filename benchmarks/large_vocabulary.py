"""One training step of a language model with GPT-2's vocabulary against its peers: time, and peak memory.

    python benchmarks/large_vocabulary.py --threads 1              # 6 x 384, 50,257 words, 8 rows of 512; about ten minutes
    python benchmarks/large_vocabulary.py --modes xla --rows 4
    python benchmarks/large_vocabulary.py --threads 1 --repeats 3    # in turn, on a processor whose speed changes

Ours is `training.NextTokenTrainer`, whose logits are those of a chunk of tokens at a time, with `FusedAdamW`; "ours,
whole" is `tasks.LanguageModel` with `MaskedCrossentropy`. All train every weight on every token in float32, without dropout.
Each rival is a process of its own, once for the time and once for the memory, with an allocator that returns freed memory at
once. Memory is the peak of the steps minus the memory before the model was built, so that it has the weights, the
optimizer, the compiled program and all tensors.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import functools
import json
import statistics
import subprocess
import sys
import time

import numpy as np
from long_worker import forget_peak, memory, release_free_memory
from measure import Table, arguments, limit_threads, limit_training_threads, versions
from networks import Measures
from training_worker import ALLOCATOR

MEASURES = Measures(length=512, vocabulary_size=50257)
TINY = {"num_layers": 1, "hidden_dim": 16, "num_heads": 2, "intermediate_dim": 32, "length": 8, "vocabulary_size": 50}


def batch(options, measures):
    """Returns token ids and the next ones, int32 `(rows, length)`."""
    words = np.random.default_rng(0).integers(0, measures.vocabulary_size, (options.rows, measures.length + 1))
    return words[:, :-1].astype("int32"), words[:, 1:].astype("int32")


def our_step(options, measures, whole):
    import keras

    from keras_transformer import models, tasks, training

    rates = {"dropout": 0.0, "embedding_dropout": 0.0, "attention_dropout": 0.0}
    backbone = models.GPT2(measures.size, measures.vocabulary_size, max_sequence_length=measures.length, **rates)
    model = tasks.LanguageModel(backbone)
    token_ids, labels = batch(options, measures)
    inputs = {"token_ids": token_ids}  # Rows without padding need no mask.
    if whole:
        model.compile(keras.optimizers.AdamW(1e-4), training.MaskedCrossentropy(), jit_compile=options.mode == "xla")
    else:
        model = training.NextTokenTrainer(model, packed=False, chunk_size=options.chunk_size)
        model.compile(training.FusedAdamW(1e-4), jit_compile=options.mode == "xla")
    return lambda: float(np.ravel(model.train_on_batch(inputs, labels))[0])


def keras_step(options, measures):
    import keras
    from networks import plain_decoder

    model = plain_decoder(measures)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-4), loss, jit_compile=options.mode == "xla")
    data = batch(options, measures)
    return lambda: float(np.ravel(model.train_on_batch(*data))[0])


def keras_hub_step(options, measures):
    import keras
    from keras_hub.models import GPT2Backbone, GPT2CausalLM

    sizes = measures.size._asdict()
    backbone = GPT2Backbone(measures.vocabulary_size, dropout=0.0, max_sequence_length=measures.length, **sizes)
    model = GPT2CausalLM(backbone, preprocessor=None)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.AdamW(1e-4), loss, jit_compile=options.mode == "xla", sampler="greedy")
    token_ids, labels = batch(options, measures)
    inputs = {"token_ids": token_ids, "padding_mask": np.ones_like(token_ids)}  # It requires a mask.
    return lambda: float(np.ravel(model.train_on_batch(inputs, labels))[0])


def torch_step(options, measures, compiled):
    import torch_networks

    return torch_networks.training_step(
        torch_networks.GPT(measures), batch(options, measures), "cpu", compiled, autocast=False
    )


STEPS = {
    "ours": functools.partial(our_step, whole=False),
    "ours, whole": functools.partial(our_step, whole=True),
    "keras_layers": keras_step,
    "keras_hub": keras_hub_step,
    "torch": functools.partial(torch_step, compiled=False),
    "torch_compiled": functools.partial(torch_step, compiled=True),
}


def work(options):
    """Measures one rival and prints the result as JSON."""
    measures = MEASURES._replace(**TINY) if options.tiny else MEASURES
    if not options.worker.startswith("torch"):
        from keras_transformer import models, tasks, training  # noqa: F401 They are no memory of the model.
    if options.worker == "keras_hub":
        import keras_hub.models  # noqa: F401
    if options.threads:
        limit_threads(options.threads)
        limit_training_threads(options.threads)
    first = memory("VmRSS")
    step = STEPS[options.worker](options, measures)
    for _ in range(2):
        step()
    release_free_memory()
    forget_peak()
    times = []
    for _ in range(options.rounds):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print(json.dumps({"step_s": statistics.median(times), "peak_mb": round(memory("VmHWM") - first)}), flush=True)


def run(name, mode):
    """Returns the step time with the usual allocator, and the peak memory with the one that returns freed memory."""
    command = [sys.executable, __file__, *sys.argv[1:], "--worker", name, "--mode", mode]
    found = {}
    for key, environment, rounds in (("step_s", {}, []), ("peak_mb", ALLOCATOR, ["--rounds", "1"])):
        environment = os.environ | environment
        done = subprocess.run([*command, *rounds], stdout=subprocess.PIPE, text=True, env=environment, check=True)
        found[key] = json.loads(done.stdout.splitlines()[-1])[key]
    return found


def medians(mode, options):
    """Yields each rival with the medians of its results, of processes that ran in turn."""
    turns = [{name: run(name, mode) for name in options.rivals} for _ in range(options.repeats)]
    for name in options.rivals:
        yield name, {key: statistics.median(turn[name][key] for turn in turns) for key in turns[0][name]}


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=3)
    parser.add_argument("--modes", nargs="+", choices=("plain", "xla"), default=["plain", "xla"])
    parser.add_argument("--rivals", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--repeats", type=int, default=1, help="processes of each rival, one after the other in turn")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--chunk-size", type=int, help="of NextTokenTrainer; None: its own choice")
    parser.add_argument("--threads", type=int, help="threads of TensorFlow and PyTorch")
    parser.add_argument("--worker", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--mode", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.worker:
        work(options)
        return
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    title = f"A step of a language model of 50,257 words, {options.rows} rows of {MEASURES.length}, {backend} backend"
    table = Table(title, versions("keras-transformer", "keras", backend, "torch"))
    for mode in options.modes:
        ours = None
        for name, found in medians(mode, options):
            ours = ours or found
            ratios = {f"{key}_ratio": round(ours[key] / found[key], 3) for key in found}
            table.add(mode=mode, rival=name, step_s=round(found["step_s"], 3), peak_mb=found["peak_mb"], **ratios)
    table.note(
        f"step_s: median of {options.rounds} steps in {options.repeats} processes. Ratios: the first rival / this."
    )
    table.finish(options.json)


if __name__ == "__main__":
    main()
