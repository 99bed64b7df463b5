"""Loading, memory and latency of five well-known checkpoints with random weights, against transformers, in every runtime.

    python benchmarks/zoo.py --json zoo.json
    python benchmarks/zoo.py --only minilm_l6 vit_s16 --rounds 7

transformers writes each checkpoint. Loading: a separate process per rival; memory is its peak minus that of the imports,
relative to the file size. Latency: all rivals in turns in one process, one row of 128 tokens (T5: 128 source and 32 target
tokens) or one image; the outputs are compared first.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

from measure import Table, arguments, ratio_note, versions

MODELS = ("minilm_l6", "bert_base", "distilgpt2", "t5_small", "vit_s16")
_WORKER = pathlib.Path(__file__).with_name("zoo_worker.py")


def worker(*words):
    """Returns the JSON of the last line printed by a worker."""
    done = subprocess.run([sys.executable, _WORKER, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["failed"])[-1][:160]}
    return json.loads(done.stdout.splitlines()[-1])


def measure(table, name, folder, options):
    made = worker("make", name, folder, json.dumps(options.tiny))
    if "error" in made:
        table.add(model=name, what="make", error=made["error"])
        return
    for rival in ("ours", "transformers"):
        found = worker("load", rival, folder)
        if "peak_mb" in found:
            found["of_checkpoint"] = round(found["peak_mb"] / made["checkpoint_mb"], 2)
        table.add(model=name, what="load", rival=rival, **found)
    settings = {"threads": options.threads, "rounds": options.rounds, "tiny": options.tiny}
    rows = worker("run", name, folder, json.dumps(settings))
    for row in rows if isinstance(rows, list) else [{"rival": "all", **rows}]:
        table.add(model=name, what="run", **row)


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main():
    options = parse()
    packages = versions(
        "keras-transformer", "keras", "tensorflow", "onnxruntime", "ai-edge-litert", "torch", "transformers"
    )
    table = Table(f"Checkpoints of Hugging Face, {options.threads} threads", packages)
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            measure(table, name, pathlib.Path(folder, "checkpoint"), options)
    table.note("of_checkpoint: peak memory of loading / size of the checkpoint.")
    table.note("difference: largest difference of an output from torch, relative to the scale.")
    table.note(f"eager, compiled: time / that of torch. {ratio_note(options.rounds)}")
    table.finish(options.json)


if __name__ == "__main__":
    main()
