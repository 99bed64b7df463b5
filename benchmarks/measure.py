"""Helpers shared by the benchmarks: interleaved timing, ratios, tables as text and JSON.

Machines are noisy and shared, so rivals are timed in turns within one run. The result is the median of the ratios of
neighboring turns, with quartiles.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import platform
import statistics
import sys
import tempfile
import time
from importlib import metadata
from typing import NamedTuple

from keras_transformer.version import __version__


class Turn(NamedTuple):
    """Time of one call: wall time, and CPU time summed over all threads, in seconds."""

    wall: float
    cpu: float


def arguments(description):
    """Returns a parser with the options common to all benchmarks."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--rounds", type=int, default=15, help="turns per rival")
    parser.add_argument("--tiny", action="store_true", help="smoke test with tiny networks")
    return parser


def take_turns(rivals, rounds):
    """Calls rivals in turns; each round starts with another one.

    Args:
        rivals: dict of name to a function that runs once and returns its `Turn`, as returned by `timed`.
        rounds: int. Turns per rival.

    Returns:
        Dict of name to a list of `Turn`, one per round.
    """
    turns = {name: [] for name in rivals}
    order = list(rivals)
    for _ in range(rounds):
        for name in order:
            turns[name].append(rivals[name]())
        order.append(order.pop(0))
    return turns


def timed(run, repeat=1, warm_up=2):
    """Warms a function up; returns a function that times `repeat` calls and returns the `Turn` of one."""
    for _ in range(warm_up):
        run()

    def turn():
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(repeat):
            run()
        return Turn((time.perf_counter() - wall) / repeat, (time.process_time() - cpu) / repeat)

    return turn


def ratio(ours, peer):
    """Returns the ratio of times, ours / peer: the median over rounds, and quartiles.

    Args:
        ours: list of `Turn`, one per round.
        peer: list of `Turn` of the same rounds.

    Returns:
        Dict of "ratio", "low" and "high", in wall time, and "cpu_ratio", in CPU time, which depends less on other load
        of the machine. Below 1 ours is faster.
    """
    low, median, high = _quartiles([a.wall / b.wall for a, b in zip(ours, peer, strict=True)])
    cpu = _quartiles([a.cpu / b.cpu for a, b in zip(ours, peer, strict=True)])[1]
    return {"ratio": round(median, 3), "low": round(low, 3), "high": round(high, 3), "cpu_ratio": round(cpu, 3)}


def _quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def milliseconds(turns):
    """Returns the median wall time in milliseconds."""
    return round(statistics.median(turn.wall for turn in turns) * 1e3, 2)


def versions(*packages):
    """Returns a dict of package to version, for the head of a table."""
    found = {"python": platform.python_version()}
    for package in packages:
        if package == "keras-transformer":  # This package, under any distribution name.
            found[package] = __version__
            continue
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def listed(versions):
    """Returns a dict of package to version in one line."""
    return ", ".join(f"{package} {version}" for package, version in versions.items())


@contextlib.contextmanager
def working_folder(directory, name):
    """Yields a folder for exported files: `directory / name`, which is kept, or a temporary one.

    Args:
        directory: path, or None.
        name: str. Name of the folder in it.
    """
    if directory is not None:
        folder = pathlib.Path(directory, name)
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory() as folder:
        yield pathlib.Path(folder)


def module_of(path):
    """Returns a script as a module, from its file."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def kept(path, make):
    """Returns `path` after `make(path)` has written it, unless it exists."""
    if not path.exists():
        make(path)
    return path


def limit_threads(threads):
    """Limits the threads of TensorFlow, and of PyTorch if it is installed.

    Raises:
        SystemExit: Keras has another backend.
    """
    import keras

    if importlib.util.find_spec("torch") is not None:
        import torch

        torch.set_num_threads(threads)
    if keras.backend.backend() != "tensorflow":
        raise SystemExit("--threads requires the TensorFlow backend; bind the process to as many processors on JAX.")
    limit_tensorflow_threads(threads)


def limit_tensorflow_threads(threads, operations=None):
    """Limits the threads of TensorFlow, without loading PyTorch: for a process that has no peer in it.

    Args:
        threads: int >= 1. Threads of an operation.
        operations: int >= 1. Operations that may run at once. Default: `threads`.
    """
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(operations or threads)


def limit_training_threads(threads):
    """Binds the process to as many processors, and lets TensorFlow run at least two operations at once.

    With one thread for operations, TensorFlow runs those that are ready breadth-first, and a training step needs up to twice
    the memory.
    """
    if hasattr(os, "sched_setaffinity"):  # Linux.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    limit_tensorflow_threads(threads, max(2, threads))


class Table:
    """Table of results with a title, package versions and notes; printed, and written as JSON.

    Args:
        title: str.
        versions: dict of package to version.
    """

    def __init__(self, title, versions):
        self.title = title
        self.versions = versions
        self.rows = []
        self.notes = []

    def add(self, **row):
        """Adds a row and prints it to stderr as progress."""
        self.rows.append(row)
        print("  ".join(f"{name}={_cell(value)}" for name, value in row.items()), file=sys.stderr, flush=True)

    def note(self, line):
        """Adds a line below the table, unless it is there."""
        if line not in self.notes:
            self.notes.append(line)

    def __str__(self):
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        lines = [columns, *([_cell(row.get(name)) for name in columns] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        body = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        body.insert(1, "  ".join("-" * width for width in widths))
        return "\n".join([self.title, listed(self.versions), "", *body, *(["", *self.notes] if self.notes else [])])

    def finish(self, path=None):
        """Prints the table and writes it to `path`, if given."""
        print(self)
        if path is not None:
            pathlib.Path(path).write_text(json.dumps(vars(self), indent=1) + "\n")


def ratio_note(rounds):
    return (
        f"ratio: ours / peer in wall time, median of {rounds} rounds, quartiles low and high; cpu_ratio: the same in "
        "CPU time. Below 1 ours is faster."
    )


def _cell(value):
    return "-" if value is None else str(value)
