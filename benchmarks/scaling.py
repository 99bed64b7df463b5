"""Step time and memory of one training on 1, 2 and 4 virtual devices, and with 2 processes.

    python benchmarks/scaling.py                          # some minutes on two cores
    python benchmarks/scaling.py --only "jax, 4 devices, weights split in 2"

All rows have the same batch and processor, so the increase of the step time is the overhead of distribution. Memory is that
of one process minus its memory before the model was built; all virtual devices of a process share it.
"""

import socket

from measure import Table, arguments, versions
from training_worker import Worker

SETTINGS = {
    "tensorflow, 1 device": ("tensorflow", {}),
    "tensorflow, 2 devices": ("tensorflow", {"devices": 2, "distributed": True}),
    "tensorflow, 4 devices": ("tensorflow", {"devices": 4, "distributed": True}),
    "tensorflow, 2 processes": ("tensorflow", {"distributed": True, "processes": 2}),
    "jax, 1 device": ("jax", {}),
    "jax, 2 devices": ("jax", {"devices": 2, "distributed": True}),
    "jax, 4 devices": ("jax", {"devices": 4, "distributed": True}),
    "jax, 2 devices, weights split in 2": ("jax", {"devices": 2, "distributed": True, "model_parallel": 2}),
    "jax, 4 devices, weights split in 2": ("jax", {"devices": 4, "distributed": True, "model_parallel": 2}),
}


def run(setting, options):
    """Returns the result of each process of a setting."""
    backend, job = SETTINGS[setting]
    job = {
        **job,
        "size": options.size,
        "batch_size": options.batch_size,
        "length": options.length,
        "steps": options.rounds,
        "jit_compile": backend == "jax",
    }
    processes = job.pop("processes", 1)
    workers = [Worker(backend) for _ in range(processes)]
    configs = cluster(processes) if processes > 1 else [None]
    for worker, config in zip(workers, configs, strict=True):
        worker.start(**job, tf_config=config)
    found = [worker.result() for worker in workers]
    for worker in workers:
        worker.__exit__()
    return found


def cluster(count):
    """Returns the TF_CONFIG of each process on this machine."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return [{"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}} for index in range(count)]


def parse():
    parser = arguments(__doc__.splitlines()[0])
    parser.set_defaults(rounds=5)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="SETTING")
    parser.add_argument("--size", nargs=4, type=int, default=[4, 256, 4, 1024], help="layers, width, heads, inner")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    options = parser.parse_args()
    if options.tiny:
        options.size, options.length, options.rounds = [1, 16, 2, 32], 8, 1
    return options


def main():
    options = parse()
    title = f"A training of {options.size}, {options.batch_size} rows of {options.length} tokens"
    table = Table(title, versions("keras-transformer", "keras", "tensorflow", "jax"))
    alone = {}
    for name in options.only:
        found = run(name, options)
        errors = [each["error"] for each in found if "error" in each]
        if errors:
            table.add(setting=name, error=errors[0])
            continue
        seconds = max(each["seconds"] for each in found)
        first = alone.setdefault(SETTINGS[name][0], seconds)
        table.add(
            setting=name,
            step_s=round(seconds, 3),
            of_first=round(seconds / first, 2),
            peak_mb=round(max(each["peak_mb"] for each in found)),
        )
    table.note(
        f"step_s: the median of {options.rounds} steps; of_first: relative to the first row of the same backend."
    )
    table.note("TensorFlow runs its graph, JAX compiles with XLA.")
    table.finish(options.json)


if __name__ == "__main__":
    main()
