"""Measurements of `memory.py`, `scaling.py` and `planning.py`: training in a separate process.

    echo '{"network": "decoder", "size": [2, 64, 2, 128], ...}' | python benchmarks/training_worker.py

Each input line is a job, each output line its result. Each job runs in a fork of a process that has only imported Keras,
because importing takes seconds; a job with virtual devices or workers sets them in its fork.
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
from training_networks import NETWORKS

DEFAULTS = {
    "network": "decoder",
    "size": [8, 256, 4, 1024],
    "vocabulary_size": 512,
    "batch_size": 8,
    "length": 512,
    "policy": "float32",
    "recompute": 0,
    "loss_chunk": None,
    "accumulate": 1,
    "optimizer": "adamw",
    "devices": 1,
    "model_parallel": 1,
    "distributed": False,
    "jit_compile": False,
    "steps": 5,
    "threads": None,
}
# Freed memory is returned at once, so that the memory of the process is what it needs: TensorFlow's CPU allocator keeps all
# of it, and glibc keeps fragments.
ALLOCATOR = {
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_ARENA_MAX": "2",
}
_TRACED = 2  # The first step traces, and the second may.


class Worker:
    """Process that runs jobs sequentially on one backend.

    Args:
        backend: str.
        allocator: dict of environment variables. Default: that of `ALLOCATOR`, for memory; for times use {}.
    """

    def __init__(self, backend="tensorflow", allocator=ALLOCATOR):
        environment = {**os.environ, "KERAS_BACKEND": backend, **allocator}
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def start(self, **job):
        self._process.stdin.write(json.dumps({**DEFAULTS, **job}) + "\n")
        self._process.stdin.flush()
        return self

    def result(self):
        """Returns a dict of results, or of "error" only.

        "seconds" and "cpu" of a step are medians. "peak_mb" is the peak of the process minus its memory before the model
        was built: "tensors_mb", variables and the tensors of a step, plus "program_mb", graphs and code.
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
    """Returns the network of a job, with its head."""
    return NETWORKS[job["network"]](job)


def batch(job, model):
    """Returns arrays for the inputs of a model by name, and labels."""
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
    """Compiles a model; returns it, or what trains it."""
    import keras

    from keras_transformer import training

    if job["recompute"]:
        training.recompute_blocks(model, job["recompute"])
    options = {"gradient_accumulation_steps": job["accumulate"]} if job["accumulate"] > 1 else {}
    if job["optimizer"] == "fused_adamw":
        optimizer = training.FusedAdamW(**options)
    elif job["optimizer"] == "momentum":
        optimizer = keras.optimizers.SGD(momentum=0.9, **options)
    else:
        optimizer = type(keras.optimizers.get(job["optimizer"]))(**options)
    if job["loss_chunk"]:
        model = training.NextTokenTrainer(model, packed=False, chunk_size=job["loss_chunk"])
        model.compile(optimizer, jit_compile=job["jit_compile"])
        return model
    model.compile(optimizer, training.MaskedCrossentropy(), jit_compile=job["jit_compile"])
    return model


def measure(job):
    """Trains for a number of steps; a step is one update of the weights."""
    _set_devices(job)
    import keras

    from keras_transformer import training

    keras.config.set_dtype_policy(job["policy"])
    if not job.get("tf_config"):
        _warm()  # Workers must connect first, so their figures include the base memory of TensorFlow.
    first = memory("VmRSS")
    if job["distributed"]:
        parts = job["model_parallel"]
        model = training.distributed(lambda: build(job), lambda model: compile_model(job, model), model_parallel=parts)
    else:
        model = build(job)
    arrays = batch(job, model)
    if not job["distributed"]:
        model = compile_model(job, model)
    clock = _fitted(job, model, arrays)
    wall, cpu = (statistics.median(each) for each in zip(*clock.times, strict=True))
    peak, variables = memory("VmHWM"), _megabytes([*model.variables, *model.optimizer.variables])
    return {
        "seconds": wall,
        "least_seconds": min(clock.times)[0],
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
    """Returns the `Clock` of a training of a number of steps."""
    from keras_transformer import data

    steps, clock = job["accumulate"], _clock()
    stream = data.BatchStream(lambda epoch, step: arrays, steps, fixed_shapes=True).repeat()
    epochs = job["steps"] + _TRACED
    model.fit(stream, steps_per_epoch=steps, epochs=epochs, shuffle=False, callbacks=[clock], verbose=0)
    return clock


def _clock():
    import keras

    class Clock(keras.callbacks.Callback):
        """Records wall and CPU time of each step without tracing, and the memory between steps.

        Resets the peak memory in the kernel after tracing, because tracing and compiling may need more than training.
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
    """Trains a tiny network, so that threads, pools and code are excluded from the figures."""
    job = {**DEFAULTS, "size": [1, 16, 2, 32], "length": 8, "batch_size": 2, "steps": 1}
    model = build(job)
    compile_model(job, model)
    _fitted(job, model, batch(job, model))


def _set_devices(job):
    if job["threads"]:
        set_threads(job["threads"])
    if os.environ.get("KERAS_BACKEND") == "jax":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={job['devices']}"
    elif job["devices"] > 1:
        import tensorflow as tf

        device = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(device, [tf.config.LogicalDeviceConfiguration()] * job["devices"])
    if job.get("tf_config"):
        os.environ["TF_CONFIG"] = json.dumps(job["tf_config"])


def set_threads(threads):
    """Sets the threads of an operation; at least two operations run at once.

    With one, TensorFlow runs the operations that are ready breadth-first: those of blocks that are recomputed long before
    their gradients, and a step needs twice the memory.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(max(2, threads))


def main():
    import keras  # noqa: F401

    from keras_transformer import data, models, tasks, training  # noqa: F401

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                found = measure(json.loads(line))
            except Exception as error:  # Any error is a result.
                found = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
            print(json.dumps(found), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
