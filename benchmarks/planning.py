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

# Much memory and few operations, to compare the counted bytes.
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
    """Prints the prediction for a job as JSON; runs in a separate process, because it imports TensorFlow."""
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
