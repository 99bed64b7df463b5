"""Time and memory of each mechanism on long sequences, against full attention and against its peer in torch.

    python benchmarks/long_sequences.py --json long.json
    python benchmarks/long_sequences.py --only longformer bigbird --lengths 2048 4096
    python benchmarks/long_sequences.py --only local --num-heads 1 --lengths 16384 --modes train

A row is one layer with its projections on one sequence: the forward pass, or a training step with the gradients of all
weights and of the input. Each figure is measured in a separate process; memory is the peak of the process minus its memory
before the first step.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

from measure import Table, arguments, versions

MODES = ("forward", "train")
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
PEERS = {
    "softmax": "torch fused attention",
    "blockwise": "torch fused attention",
    "longformer": "Hugging Face Longformer",
    "bigbird": "Hugging Face BigBird",
    "lsh": "Hugging Face Reformer",
    "performer": "performer-pytorch",
    "linear": "linear-attention-transformer",
    "linformer": "linformer",
}
_WORKER = pathlib.Path(__file__).with_name("long_worker.py")


class Runs:
    """Measurements, each made once; a rival that failed or was too slow is not measured at greater lengths."""

    def __init__(self, options):
        self.options = options
        self.found = {}
        self.given_up = {}
        self._workers = {}

    def __call__(self, rival, name, length, mode):
        """Returns a dict with "seconds", "cpu" and "peak_mb", or with "error"."""
        key, group = (rival, name, length, mode), (rival, name, mode)
        if key not in self.found:
            if group in self.given_up:
                return {"error": f"not run: {self.given_up[group]}"}
            self.found[key] = found = self._measure(rival, name, length, mode)
            if "error" in found:
                self.given_up[group] = f"failed at {length}"
            elif found["seconds"] > self.options.seconds:
                self.given_up[group] = f"took {found['seconds']:.0f} s at {length}"
        return self.found[key]

    def _measure(self, rival, name, length, mode):
        shared = ("num_heads", "key_dim", "window", "threads", "causal", "rounds", "seconds", "max_gb", "xla")
        job = {"rival": rival, "name": name, "length": length, "train": mode == "train"}
        job |= {option: getattr(self.options, option) for option in shared}
        worker = self._workers.get(rival) or self._start(rival)
        print(json.dumps(job), file=worker.stdin, flush=True)
        for line in worker.stdout:
            if line.startswith("{"):  # Other lines are printed by libraries.
                return json.loads(line)
        raise SystemExit(f"The worker for {rival!r} ended with {worker.wait()}.")

    def _start(self, rival):
        environment = {**os.environ, "OMP_NUM_THREADS": str(self.options.threads), "KERAS_BACKEND": "tensorflow"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
        self._workers[rival] = subprocess.Popen([sys.executable, _WORKER, rival], env=environment, **pipes)
        return self._workers[rival]

    def close(self):
        for worker in self._workers.values():
            worker.stdin.close()
            worker.wait()


def measure(table, name, length, mode, runs):
    ours, full = runs("ours", name, length, mode), runs("ours", "softmax", length, mode)
    row = {"mode": mode, "n": length, "mechanism": name}
    if "error" in ours:
        table.note(f"{name}, {mode}, n = {length}: {ours['error']}")
        table.add(**row)
        return
    row |= {"ms": round(1e3 * ours["seconds"], 1), "mb": round(ours["peak_mb"])}
    if "error" not in full:
        row |= {"of_full_time": _quotient(ours, full, "seconds"), "of_full_memory": _quotient(ours, full, "peak_mb")}
    if name in PEERS:
        peer = runs("peer", name, length, mode)
        row["peer"] = PEERS[name]
        if "error" in peer:
            table.note(f"{PEERS[name]}, {mode}, n = {length}: {peer['error']}")
        else:
            row |= {"peer_ms": round(1e3 * peer["seconds"], 1), "peer_mb": round(peer["peak_mb"])}
            row |= {"ratio": _quotient(ours, peer, "seconds"), "cpu_ratio": _quotient(ours, peer, "cpu")}
    table.add(**row)


def _quotient(a, b, what):
    return round(a[what] / b[what], 3) if b[what] > 0 else None


def crossovers(rows):
    """Returns notes with the length from which each mechanism is faster than full attention."""
    lines = []
    for mode, name in dict.fromkeys((row["mode"], row["mechanism"]) for row in rows):
        shares = {
            row["n"]: row["of_full_time"]
            for row in rows
            if (row["mode"], row["mechanism"]) == (mode, name) and row.get("of_full_time") is not None
        }
        if name == "softmax" or not shares:
            continue
        slower = [length for length, share in shares.items() if share >= 1]
        after = [length for length in shares if length > max(slower, default=0)]
        found = f"from n = {min(after)} on" if after else f"not up to n = {max(shares)}"
        lines.append(f"{mode}: {name} is faster than full attention {found}")
    return lines


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=5)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="mechanisms; all by default")
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS))
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--num-heads", type=int, default=8)
    parser.add_argument("--key-dim", type=int, default=64)
    parser.add_argument("--window", type=int, default=256, help="width of local patterns, both sides together")
    parser.add_argument("--causal", action="store_true", help="causal attention, if supported")
    parser.add_argument("--xla", action="store_true", help="compile ours with XLA")
    parser.add_argument("--threads", type=int, default=2, help="of every rival")
    parser.add_argument(
        "--seconds", type=float, default=10, help="a rival slower than this is not run at greater lengths"
    )
    parser.add_argument("--max-gb", type=int, default=14, help="limit of the address space of a measurement")
    options = parser.parse_args()
    if options.tiny:
        options.lengths, options.num_heads, options.key_dim, options.window, options.rounds = [64, 128], 2, 8, 16, 1
    return options


def main():
    options = parse()
    start = time.perf_counter()
    from long_mechanisms import NAMES

    unknown = sorted(set(options.only or ()) - set(NAMES))
    if unknown:
        raise SystemExit(f"Unknown: {', '.join(unknown)}. Valid names: {', '.join(NAMES)}")
    packages = ("keras-transformer", "keras", "tensorflow", "torch", "transformers", "performer-pytorch")
    packages = versions(*packages, "linear-attention-transformer", "linformer")
    measures = f"{options.num_heads} heads of {options.key_dim}, batch 1, {options.threads} threads"
    table, runs = Table(f"Long sequences, {measures}, window {options.window}", packages), Runs(options)
    for mode in options.modes:
        for name in options.only or NAMES:
            for length in sorted(options.lengths):
                measure(table, name, length, mode, runs)
    runs.close()
    for line in crossovers(table.rows):
        table.note(line)
    table.note(
        "ratio: ours / peer in wall time; cpu_ratio: in CPU time; of_full_*: ours / our full attention. Medians of "
        f"{options.rounds} steps. Below 1 ours is faster, or smaller."
    )
    table.note(f"Total time: {time.perf_counter() - start:.0f} s.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
