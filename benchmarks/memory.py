"""Peak memory and step time of training: plain, with recomputation, gradient accumulation and mixed precision.

    python benchmarks/memory.py                      # a decoder of 8 layers, 8 rows of 512 tokens; some minutes on two cores
    python benchmarks/memory.py --backend jax --only plain recompute
    python benchmarks/memory.py --size 12 512 8 2048 --length 1024

Each row of the table is a training in a separate process. A step is one update of the weights with the same rows, in any
number of parts. Memory is that of tensors: all variables, and the peak of the process in a step minus its memory between
steps, with an allocator that returns freed memory at once.
"""

from measure import Table, arguments, versions
from training_worker import Worker

SETTINGS = {
    "plain": {},
    "recompute": {"recompute": 1},
    "recompute every second block": {"recompute": 2},
    "accumulate 4 parts": {"accumulate": 4},
    "accumulate 4 parts, recompute": {"accumulate": 4, "recompute": 1},
    "mixed_bfloat16": {"policy": "mixed_bfloat16"},
    "mixed_bfloat16, recompute": {"policy": "mixed_bfloat16", "recompute": 1},
}


def measure(table, worker, name, options, first):
    found = worker.run(
        size=options.size,
        batch_size=options.batch_size,
        length=options.length,
        steps=options.rounds,
        jit_compile=options.xla,
        **SETTINGS[name],
    )
    if "error" in found:
        table.add(setting=name, error=found["error"])
        return None
    first = first or found
    table.add(
        setting=name,
        tensors_mb=round(found["tensors_mb"]),
        of_plain=round(found["tensors_mb"] / first["tensors_mb"], 2),
        step_s=round(found["seconds"], 3),
        time_of_plain=round(found["seconds"] / first["seconds"], 2),
        cpu_of_plain=round(found["cpu"] / first["cpu"], 2),
    )
    return first


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=5)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--backend", choices=("tensorflow", "jax"), default="tensorflow")
    parser.add_argument("--size", nargs=4, type=int, default=[8, 256, 4, 1024], help="layers, width, heads, inner")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--xla", action="store_true", help="compile the step with XLA on TensorFlow, as always on JAX")
    options = parser.parse_args()
    if options.tiny:
        options.size, options.length, options.rounds = [2, 16, 2, 32], 16, 1
    options.xla = options.xla or options.backend == "jax"
    return options


def main():
    options = parse()
    title = f"A training of {options.size}, {options.batch_size} rows of {options.length} tokens, {options.backend}"
    table = Table(title, versions("keras-transformer", "keras", options.backend))
    first = None
    with Worker(options.backend) as worker:
        for name in options.only:
            first = measure(table, worker, name, options, first)
    table.note(f"step_s: the median of {options.rounds} steps in wall time; of_plain: ratios to the first row.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
