"""The benchmark of the engine at toy size. Nothing here asserts speed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = pathlib.Path(__file__).parents[2]


def test_every_rival_writes_the_same_texts(tmp_path):
    report = tmp_path / "report.json"
    command = [
        sys.executable,
        "benchmarks/engine.py",
        "--tiny",
        "--requests",
        "7",
        "--batch",
        "3",
        "--rows",
        "4",
        "--json",
        str(report),
    ]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row["rival"]: row for row in json.loads(report.read_text())["rows"]}
    assert list(rows) == ["one at a time", "static batches", "continuous, paged"]
    assert {row["same_texts"] for row in rows.values()} == {"7/7"}
    waste = {name: float(row["cache_waste"].rstrip("%")) for name, row in rows.items()}
    assert 0 < waste["continuous, paged"] < waste["one at a time"] < waste["static batches"] < 100
