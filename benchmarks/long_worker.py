"""Measurements of `long_sequences.py`, each in a separate process, so that its peak memory is measured alone.

    echo '{"rival": "ours", "name": "local", "length": 2048, ...}' | python benchmarks/long_worker.py ours

Each input line is a job, each output line its result. Slow imports are done once; each job runs in a fork.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pathlib
import resource
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

IMPORTS = {
    "ours": ("tensorflow", "long_mechanisms"),
    "peer": (
        "long_peers",
        "transformers.models.longformer.modeling_longformer",
        "transformers.models.big_bird.modeling_big_bird",
        "transformers.models.reformer.modeling_reformer",
        "performer_pytorch",
        "linear_attention_transformer",
        "linformer",
    ),
}
_STATUS = pathlib.Path("/proc/self/status")


def our_step(job):
    import keras
    import tensorflow as tf
    from long_mechanisms import is_causal, mixer
    from measure import limit_tensorflow_threads

    limit_tensorflow_threads(job["threads"])
    layer = mixer(job["name"], job["length"], job["num_heads"], job["key_dim"], job["window"])
    if job["causal"] and "causal" not in layer.supports:
        raise ValueError("no causal form")
    width, causal = job["num_heads"] * job["key_dim"], job["causal"] or is_causal(layer)
    x = keras.random.normal((1, job["length"], width), seed=0)
    layer.build(x.shape, x.shape)
    weights = [weight.value for weight in layer.trainable_weights]

    def forward():
        return layer(x, x, use_causal_mask=causal)

    def forward_and_backward():
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.square(layer(x, x, use_causal_mask=causal, training=True)))
        return tape.gradient(loss, [x, *weights])

    run = tf.function(forward_and_backward if job["train"] else forward, autograph=False, jit_compile=job["xla"])

    def step():
        for tensor in tf.nest.flatten(run()):
            tensor.numpy()  # Waits for the result.

    return step


def peer_step(job):
    import torch
    from long_peers import PEERS
    from torch_step import torch_step

    torch.set_num_threads(job["threads"])
    torch.manual_seed(0)
    width = job["num_heads"] * job["key_dim"]
    module = PEERS[job["name"]](job["length"], job["num_heads"], job["key_dim"], job["window"], job["causal"]).train(
        job["train"]
    )
    return torch_step(module, torch.randn(1, job["length"], width), job["train"])


def release_free_memory():
    """Has the C library return what it holds and nobody uses, such as what tracing a graph needed: glibc keeps it."""
    gc.collect()
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


def forget_peak():
    """Resets the peak memory of this process in the kernel."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def memory(kind):
    """Returns the current ("VmRSS") or peak ("VmHWM") memory in MiB."""
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) / 1024


def measure(job):
    """Returns the median seconds of a step, and the peak memory minus that before the first step."""
    resource.setrlimit(resource.RLIMIT_AS, (job["max_gb"] * 2**30,) * 2)
    step = {"ours": our_step, "peer": peer_step}[job["rival"]](job)
    forget_peak()
    before = memory("VmRSS")
    step()
    times, start = [], time.perf_counter()
    while len(times) < job["rounds"] and (not times or time.perf_counter() - start < job["seconds"]):
        begin, cpu = time.perf_counter(), time.process_time()
        step()
        times.append((time.perf_counter() - begin, time.process_time() - cpu))
    wall, cpu = (statistics.median(each) for each in zip(*times, strict=True))
    return {"seconds": wall, "cpu": cpu, "peak_mb": memory("VmHWM") - before}


def answer(job):
    """Returns a line of JSON with the result of `measure` or the error."""
    try:
        result = measure(job)
    except Exception as error:  # Any error is a result.
        result = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}
    print(json.dumps(result), flush=True)


def main():
    for module in IMPORTS[sys.argv[1]]:
        with contextlib.suppress(ImportError):  # Jobs that need it report the error.
            importlib.import_module(module)
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            answer(job)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            reason = f"ended with {status}: out of the {job['max_gb']} GB it may take?"
            print(json.dumps({"error": reason}), flush=True)


if __name__ == "__main__":
    main()
