"""Predictions of `keras-transformer plan` for ten trainings on one core of this processor, against measurements.

    python benchmarks/planning.py                  # ten models, about ten minutes
    python benchmarks/planning.py --only encoder "long rows"

Each model is planned in one process and trained in two others, with one thread for each operation and without XLA.

Memory is that of tensors: all variables, and the peak of the process in a step minus its memory between steps, with an
allocator that returns freed memory at once. program_mb is the memory of graphs and code, independent of the rows, which a
plan does not count. Time is that of the processor in a step, with TensorFlow's own allocator; it is predicted from what this
processor reaches in a test of a second. The model of costs was made with the first six trainings in view; the last four were
measured after it.
"""

import json
import os
import subprocess
import sys

from measure import Table, arguments, versions
from training_worker import ALLOCATOR, DEFAULTS, Worker

MEMORY_LIMIT, TIME_LIMIT = 0.1, 0.25  # The errors that a plan should keep to.
# Models that differ in kind, each of 1 to 10 seconds a step.
CASES = {
    "encoder": {
        "network": "encoder",
        "size": [4, 256, 8, 1024],
        "vocabulary_size": 8192,
        "batch_size": 10,
        "length": 384,
    },
    "wide decoder": {"size": [3, 768, 12, 3072], "vocabulary_size": 8192, "batch_size": 5, "length": 256},
    "images": {
        "network": "vit",
        "size": [6, 256, 8, 1024],
        "vocabulary_size": 1000,
        "batch_size": 24,
        "length": 224,
        "optimizer": "adam",
    },
    "large vocabulary": {
        "size": [2, 256, 8, 1024],
        "vocabulary_size": 50257,
        "length": 256,
        "loss_chunk": 256,
        "optimizer": "fused_adamw",
    },
    "recomputed": {"size": [8, 256, 8, 1024], "vocabulary_size": 4096, "length": 384, "recompute": 1},
    "adapters": {
        "network": "adapted",
        "size": [6, 512, 8, 1376],
        "vocabulary_size": 8192,
        "batch_size": 6,
        "length": 256,
    },
    "encoder and decoder": {
        "network": "t5",
        "size": [3, 256, 4, 1024],
        "vocabulary_size": 8192,
        "batch_size": 16,
        "length": 192,
    },
    "experts": {
        "network": "experts",
        "size": [3, 256, 8, 512],
        "vocabulary_size": 4096,
        "batch_size": 20,
        "length": 256,
    },
    "retention": {"network": "retention", "size": [3, 256, 4, 512], "vocabulary_size": 4096, "batch_size": 12},
    "long rows": {
        "size": [3, 256, 4, 1024],
        "vocabulary_size": 4096,
        "batch_size": 6,
        "length": 1024,
        "optimizer": "momentum",
    },
}
HELD_OUT = ("encoder and decoder", "experts", "retention", "long rows")
TINY = {"size": [1, 16, 2, 32], "vocabulary_size": 32, "length": 16, "batch_size": 2}


def predicted(job):
    """Prints the prediction for a job as JSON; runs in a separate process, because it imports TensorFlow."""
    import keras
    from training_networks import NETWORKS
    from training_worker import set_threads

    from keras_transformer.backend.devices.unallocated import unallocated
    from keras_transformer.planning import get_device, plan

    set_threads(job["threads"])
    keras.config.set_dtype_policy(job["policy"])
    device = get_device("here")
    with unallocated():
        model = NETWORKS[job["network"]](job)
    options = {name: job[name] for name in ("batch_size", "length", "optimizer", "recompute", "loss_chunk")}
    print(json.dumps(plan(model, device, **options)._asdict()))


def planned(job):
    command = [sys.executable, __file__, "--predict", json.dumps(job)]
    environment = {**os.environ, "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def add_row(table, workers, name, options):
    """Plans and trains a model; `workers` is a dict of the processes that measure memory and time."""
    job = {**DEFAULTS, **CASES[name], **(TINY if options.tiny else {}), "steps": options.rounds, "threads": 1}
    plan = planned(job)
    memory, time = (workers[kind].run(**job) for kind in ("memory", "time"))
    if error := memory.get("error") or time.get("error"):
        table.add(model=name, error=error)
        return
    predicted_mb = plan["training"] / 2**20
    table.add(
        model=name,
        held_out="held out" if name in HELD_OUT else "",
        parameters=memory["parameters"],
        predicted_mb=round(predicted_mb),
        measured_mb=round(memory["tensors_mb"]),
        memory_of_measured=round(predicted_mb / memory["tensors_mb"], 3),
        program_mb=round(memory["program_mb"]),
        predicted_s=round(plan["step"], 3),
        measured_s=round(time["cpu"], 3),
        time_of_measured=round(plan["step"] / time["cpu"], 3),
    )


def summary(rows):
    """Yields a line for memory and one for time: how many predictions are within their limits, and the largest error."""
    for kind, limit in (("memory", MEMORY_LIMIT), ("time", TIME_LIMIT)):
        errors = {row["model"]: abs(row[f"{kind}_of_measured"] - 1) for row in rows if "error" not in row}
        if errors:
            within, worst = sum(error <= limit for error in errors.values()), max(errors, key=errors.get)
            yield f"{kind}: {within} of {len(errors)} within {limit:.0%}, largest error {errors[worst]:.1%} ({worst})"


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=4)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="MODEL")
    parser.add_argument("--predict", metavar="JOB", help="internal")
    return parser.parse_args()


def main():
    options = parse()
    if options.predict:
        predicted(json.loads(options.predict))
        return
    table = Table("Planned and measured, one training step", versions("keras-transformer", "keras", "tensorflow"))
    with Worker(allocator=ALLOCATOR) as memory, Worker(allocator={}) as time:
        for name in options.only:
            add_row(table, {"memory": memory, "time": time}, name, options)
    table.note(f"measured_s: processor time, the median of {options.rounds} steps.")
    for line in summary(table.rows):
        table.note(line)
    table.finish(options.json)


if __name__ == "__main__":
    main()
