"""Predictions of `keras-transformer plan` for trainings on this processor, against measurements.

    python benchmarks/planning.py                  # six models, some minutes on two cores
    python benchmarks/planning.py --only decoder

Memory is that of tensors: all variables, and the peak of the process in a step minus its memory between steps, with an
allocator that returns freed memory at once, except pieces below 128 kB, as in the iterations of loops (Bahdanau's), which
are therefore not all counted. program_mb is the memory of graphs and code, independent of the rows. Time is predicted from
the compute and copy throughput of this processor in a test of one second.
"""

import json
import os
import subprocess
import sys

from measure import Table, arguments, versions
from training_worker import DEFAULTS, Worker

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

    from keras_transformer.backend.unallocated import unallocated
    from keras_transformer.planning import get_device, plan

    keras.config.set_dtype_policy(job["policy"])
    with unallocated():
        model = NETWORKS[job["network"]](job)
    found = plan(
        model,
        get_device("here"),
        batch_size=job["batch_size"],
        length=job["length"],
        optimizer=job["optimizer"],
        recompute=job["recompute"],
        loss_chunk=job["loss_chunk"],
    )
    print(json.dumps(found._asdict()))


def measure(table, worker, name, options):
    job = {**DEFAULTS, **CASES[name], **(TINY if options.tiny else {}), "steps": options.rounds}
    plan = subprocess.run(
        [sys.executable, __file__, "--predict", json.dumps(job)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "KERAS_BACKEND": "tensorflow"},
    )
    plan = json.loads(plan.stdout.splitlines()[-1])
    found = worker.run(**job)
    if "error" in found:
        table.add(model=name, error=found["error"])
        return
    said, held = plan["training"] / 2**20, found["tensors_mb"]
    table.add(
        model=name,
        parameters=found["parameters"],
        predicted_mb=round(said),
        measured_mb=round(held),
        of_measured=round(said / held, 3),
        program_mb=round(found["program_mb"]),
        predicted_s=round(plan["step"], 3),
        measured_s=round(found["seconds"], 3),
        time_of_measured=round(plan["step"] / found["seconds"], 2),
    )


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
    with Worker() as worker:
        for name in options.only:
            measure(table, worker, name, options)
    table.note(f"measured_s: the median of {options.rounds} steps.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
