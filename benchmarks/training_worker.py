"""Measurements of `memory.py`, `scaling.py` and `planning.py`: a training in a process of its own.

    echo '{"network": "decoder", "size": [2, 64, 2, 128], ...}' | python benchmarks/training_worker.py

A line in is a job, a line out what it found. Each job runs in a fork of a process that has imported Keras and done nothing
with it, since importing takes seconds; one that names virtual devices, or workers, sets them in its own fork.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import json
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


class Worker:
    """The process that jobs are run in, one after the other, all on one backend.

    Args:
        backend: str.
        environment: dict of what else it should find in its environment.
    """

    def __init__(self, backend="tensorflow", environment=None):
        environment = {**os.environ, "KERAS_BACKEND": backend, **(environment or {})}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, **job):
        self._process.stdin.write(json.dumps({**DEFAULTS, **job}) + "\n")
        self._process.stdin.flush()
        return self

    def result(self):
        """dict of "seconds" and "cpu" of a step (the median), "peak_mb" above what stood before; or "error"."""
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
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
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
    forget_peak()
    arrays = batch(job, model)
    times = _fitted(job, model, arrays)
    wall, cpu = (statistics.median(each) for each in zip(*times, strict=True))
    return {"seconds": wall, "cpu": cpu, "peak_mb": memory("VmHWM") - first, "parameters": model.count_params()}


def _fitted(job, model, arrays):
    """Seconds, by the clock and of the processor, of each step but the first two."""
    import keras

    from keras_transformer import training

    steps, times = job["accumulate"], []

    class Clock(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.start = time.perf_counter(), time.process_time()

        def on_epoch_end(self, epoch, logs=None):
            float(logs["loss"])
            times.append((time.perf_counter() - self.start[0], time.process_time() - self.start[1]))

    stream = training.BatchStream(lambda epoch, step: arrays, steps, fixed_shapes=True).repeat()
    epochs = job["steps"] + 2
    model.fit(stream, steps_per_epoch=steps, epochs=epochs, shuffle=False, callbacks=[Clock()], verbose=0)
    return times[2:]  # The first traces, and the second may.


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

    from keras_transformer import models, tasks, training  # noqa: F401

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
