"""Runs benchmarks at toy size, most of them in one process, and hands over what they printed and wrote."""

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[2]
WORKER = pathlib.Path(__file__).with_name("benchmark_worker.py")
# These set threads or a policy for their whole process.
ALONE = {"train_step", "inference", "gpu_training", "latent_attention", "engine_load"}


class Command(NamedTuple):
    """A script, its options, and columns that its table must have."""

    words: list[str]
    columns: set[str]


class Reports:
    """What benchmarks printed and wrote: name -> (printed, JSON).

    Args:
        directory: where they wrote.
    """

    def __init__(self, directory):
        self.directory = directory

    def __getitem__(self, name):
        printed = (self.directory / f"{name}.txt").read_text()
        assert (self.directory / name).exists(), printed[-3000:]
        return printed, json.loads((self.directory / name).read_text())


def run_benchmarks(commands, directory):
    """Runs `commands`, a dict of name to `Command`, and returns their `Reports`."""
    together = [name for name in commands if name not in ALONE]
    for names in ([together] if together else []) + [[name] for name in commands if name in ALONE]:
        _run({name: _words(name, commands[name], directory) for name in names}, directory)
    return Reports(directory)


def _words(name, command, directory):
    script, *options = command.words
    return [str(ROOT / f"benchmarks/{script}.py"), "--tiny", *options, "--json", str(directory / name)]


def _run(words, directory):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    command = [sys.executable, str(WORKER), str(directory)]
    given = {"input": json.dumps(words), "capture_output": True, "text": True}
    done = subprocess.run(command, cwd=ROOT, env=environment, timeout=900, **given)
    assert done.returncode == 0, done.stderr[-3000:]


def check_table(report, columns):
    """Asserts that what was printed is the JSON, row by row, with these columns among others."""
    printed, written = report
    lines = printed[printed.index(written["title"]) :].splitlines()  # Converters may print before.
    start = next(index for index, line in enumerate(lines) if set(line) == {"-", " "}) - 1
    spans = [match.span() for match in re.finditer("-+", lines[start + 1])]
    cells = [[line[begin:end].strip() for begin, end in spans] for line in lines[start:]]
    assert columns <= set(cells[0])
    assert written["rows"]
    for found, row in zip(cells[2:], written["rows"], strict=False):
        assert found == ["-" if row.get(column) is None else str(row[column]) for column in cells[0]]
    assert all(note in lines for note in written["notes"])
