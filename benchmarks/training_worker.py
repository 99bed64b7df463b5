"""Measurements of `memory.py`, `scaling.py` and `planning.py`: a training in a process of its own.

    echo '{"network": "decoder", "size": [2, 64, 2, 128], ...}' | python benchmarks/training_worker.py

A line in is a job, a line out what it found. Each job runs in a fork of a process that has imported Keras and done nothing
with it, since importing takes seconds; one that names virtual devices, or workers, sets them in its own fork.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import json
import math
import statistics
import subprocess
import sys
import time

from long_worker import forget_peak, memory

DEFAULTS = {
    "network": "decoder",
    "size": [8, 256, 4, 1024],
    "vocabulary_size": 512,
    "batch_size": 8,
    "length": 512,
    "policy": "float32",
    "recompute": 0,
    "accumulate": 1,
    "optimizer": "adamw",
    "devices": 1,
    "model_parallel": 1,
    "distributed": False,
    "jit_compile": False,
    "steps": 5,
}
# Memory that is freed goes back at once, so that what a process holds is what it needs: TensorFlow's own pool on a processor
# keeps all that it ever had, and glibc pieces that not everything fits into.
ALLOCATOR = {
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_ARENA_MAX": "2",
}
_TRACED = 2  # Steps that trace: the first, and the second may.


class Worker:
    """The process that jobs are run in, one after the other, all on one backend.

    Args:
        backend: str.
    """

    def __init__(self, backend="tensorflow"):
        environment = {**os.environ, "KERAS_BACKEND": backend, **ALLOCATOR}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, **job):
        self._process.stdin.write(json.dumps({**DEFAULTS, **job}) + "\n")
        self._process.stdin.flush()
        return self

    def result(self):
        """dict; or one of "error" alone.

        "seconds" and "cpu" of a step: medians. "peak_mb": what the process holds at its fullest above what it held before
        the model was built: "tensors_mb", variables and what a step adds to them, and "program_mb", graphs and code.
        """
        line = self._process.stdout.readline()
        return json.loads(line) if line else {"error": "the process ended"}

    def run(self, **job):
        return self.start(**job).result()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._process.stdin.close()
        self._process.wait()


def build(job):
    """The network of a job, with its head."""
    from keras_transformer import models, tasks

    size, words = models.Size(*job["size"]), job["vocabulary_size"]
    if job["network"] == "vit":
        side = job["length"]
        return tasks.ImageClassifier(models.ViT(size, 16, side), words, activation=None)
    if job["network"] == "encoder":
        encoder = models.Encoder(size, words, max_sequence_length=job["length"], position="rotary", feedforward="gated")
        return tasks.MaskedLanguageModel(encoder)
    if job["network"] == "bahdanau":
        width = size.hidden_dim
        backbone = models.Bahdanau(models.BahdanauSize(width, width, alignment_dim=width, readout_dim=width), words)
        return tasks.LanguageModel(backbone)
    if job["network"] == "transformer":
        return tasks.LanguageModel(models.Transformer(size, words, max_sequence_length=job["length"]))
    return tasks.LanguageModel(models.Decoder(size, words, max_sequence_length=job["length"]))


def batch(job, model):
    """Arrays for the inputs of a model by their names, and labels."""
    import keras
    import numpy as np

    drawn, rows, length = np.random.default_rng(0), job["batch_size"] // job["accumulate"], job["length"]

    def array(tensor):
        shape = (rows, *(side or length for side in tensor.shape[1:]))
        if tensor.dtype == "bool":
            return np.ones(shape, "bool")
        if tensor.dtype == "int32":
            return drawn.integers(1, job["vocabulary_size"], shape).astype("int32")
        return drawn.random(shape, dtype="float32")

    inputs = keras.tree.map_structure(array, model.input)
    shape = (rows, *(length for _ in model.output.shape[1:-1]))
    return inputs, drawn.integers(0, job["vocabulary_size"], shape).astype("int32")


def compile_model(job, model):
    import keras

    from keras_transformer import training

    if job["recompute"]:
        training.recompute_blocks(model, job["recompute"])
    optimizer = keras.optimizers.get(job["optimizer"])
    if job["accumulate"] > 1:
        optimizer = type(optimizer)(gradient_accumulation_steps=job["accumulate"])
    loss = training.MaskedCrossentropy()
    model.compile(optimizer, loss, jit_compile=job["jit_compile"])


def measure(job):
    """Trains for some steps; a step is one update of the weights."""
    _set_devices(job)
    import keras

    from keras_transformer import training

    keras.config.set_dtype_policy(job["policy"])
    if not job.get("tf_config"):
        _warm()  # Workers join one another before anything else: what TensorFlow takes anyway is in their figures.
    first = memory("VmRSS")
    if job["distributed"]:
        parts = job["model_parallel"]
        model = training.distributed(lambda: build(job), lambda model: compile_model(job, model), model_parallel=parts)
    else:
        model = build(job)
        compile_model(job, model)
    clock = _fitted(job, model, batch(job, model))
    wall, cpu = (statistics.median(each) for each in zip(*clock.times, strict=True))
    peak, variables = memory("VmHWM"), _megabytes([*model.variables, *model.optimizer.variables])
    return {
        "seconds": wall,
        "cpu": cpu,
        "peak_mb": peak - first,
        "tensors_mb": variables + peak - clock.at_rest,
        "program_mb": clock.at_rest - first - variables,
        "parameters": model.count_params(),
    }


def _megabytes(variables):
    import keras
    import numpy as np

    dtype = keras.backend.standardize_dtype
    return sum(math.prod(each.shape) * np.dtype(dtype(each.dtype)).itemsize for each in variables) / 2**20


def _fitted(job, model, arrays):
    """The `Clock` of a training of some steps."""
    from keras_transformer import data

    steps, clock = job["accumulate"], _clock()
    stream = data.BatchStream(lambda epoch, step: arrays, steps, fixed_shapes=True).repeat()
    epochs = job["steps"] + _TRACED
    model.fit(stream, steps_per_epoch=steps, epochs=epochs, shuffle=False, callbacks=[clock], verbose=0)
    return clock


def _clock():
    import keras

    class Clock(keras.callbacks.Callback):
        """Seconds, by the clock and of the processor, of each step that traces nothing, and what is held between two.

        From its first step on the kernel's peak counts anew: tracing and compiling may take more than training does.
        """

        times, at_rest = (), None

        def on_epoch_begin(self, epoch, logs=None):
            if epoch == _TRACED:
                self.at_rest = memory("VmRSS")
                forget_peak()
            self.start = time.perf_counter(), time.process_time()

        def on_epoch_end(self, epoch, logs=None):
            float(logs["loss"])
            if epoch >= _TRACED:
                self.times += ((time.perf_counter() - self.start[0], time.process_time() - self.start[1]),)

    return Clock()


def _warm():
    """Trains a network of toy size: threads, pools and code that a training takes anyway are no part of its figures."""
    job = {**DEFAULTS, "size": [1, 16, 2, 32], "length": 8, "batch_size": 2, "steps": 1}
    model = build(job)
    compile_model(job, model)
    _fitted(job, model, batch(job, model))


def _set_devices(job):
    if os.environ.get("KERAS_BACKEND") == "jax":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={job['devices']}"
    elif job["devices"] > 1:
        import tensorflow as tf

        device = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * job["devices"])
    if job.get("tf_config"):
        os.environ["TF_CONFIG"] = json.dumps(job["tf_config"])


def main():
    import keras  # noqa: F401

    from keras_transformer import data, models, tasks, training  # noqa: F401

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                found = measure(json.loads(line))
            except Exception as error:  # Whatever stands in the way is the finding.
                found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
            print(json.dumps(found), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
