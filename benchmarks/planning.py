"""What `keras-transformer plan` says of trainings on this processor, beside what they take.

    python benchmarks/planning.py                  # six models, some minutes on two cores
    python benchmarks/planning.py --only decoder

Memory is that of tensors: all variables, and what the process holds at the fullest moment of a step above what it holds
between two, with an allocator that keeps nothing that is freed; but it keeps pieces below 128 kB, which the rounds of loops
are made of (Bahdanau's), so that they are not all seen. program_mb is what graphs and code take besides, whatever
the rows. Time is predicted for a processor that always computes, or copies, as fast as it did in a test of a second before.
"""

import json
import os
import subprocess
import sys

from measure import Table, arguments, versions
from training_worker import DEFAULTS, Worker

# Much memory for little work: what is to be known is whether bytes are counted right.
NETWORKS = {
    "decoder": {"network": "decoder", "size": [4, 192, 12, 768], "vocabulary_size": 4096, "length": 384},
    "encoder": {"network": "encoder", "size": [4, 192, 12, 512], "vocabulary_size": 2048, "length": 384},
    "vit": {"network": "vit", "size": [6, 192, 12, 768], "vocabulary_size": 1000, "length": 224, "batch_size": 24},
    "decoder, recomputed": {"size": [8, 256, 8, 1024], "vocabulary_size": 4096, "length": 384, "recompute": 1},
    "transformer": {"network": "transformer", "size": [3, 192, 12, 768], "vocabulary_size": 4096, "length": 256},
    "bahdanau": {"network": "bahdanau", "size": [1, 192, 1, 192], "vocabulary_size": 4096, "length": 96},
}
TINY = {"size": [1, 16, 2, 32], "vocabulary_size": 32, "length": 16, "batch_size": 2}


def predicted(job):
    """Prints, as JSON, what is predicted for a job; in a process of its own, as it needs TensorFlow."""
    import keras
    from training_worker import build

    from keras_transformer.backend.unallocated import unallocated
    from keras_transformer.planning import get_device, plan

    keras.config.set_dtype_policy(job["policy"])
    with unallocated():
        model = build(job)
    found = plan(
        model,
        get_device("here"),
        batch_size=job["batch_size"],
        length=job["length"],
        optimizer=job["optimizer"],
        recompute=job["recompute"],
        efficiency=1.0,
    )
    print(json.dumps(found._asdict()))


def measure(table, worker, name, options):
    job = {**DEFAULTS, **NETWORKS[name], **(TINY if options.tiny else {}), "steps": options.rounds}
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
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS), metavar="MODEL")
    parser.add_argument("--predict", metavar="JOB", help="used by the benchmark itself")
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
