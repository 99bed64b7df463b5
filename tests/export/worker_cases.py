"""The cases of a worker process, one after the other."""

import json
import os
import sys
import time
import traceback

import keras


def is_exhaustive():
    """Whether an exhaustive test that waits for this process is selected: see `worker_environment` of conftest.py."""
    return os.environ.get("EXHAUSTIVE") == "1"


def run_cases(out, cases, after=None, exhaustive=()):
    """Runs cases, a dict of name to function; what each returns, or its crash, goes to `results.json`.

    It is written after each case, so that the case of a crash of the process is known. Those named in `exhaustive` run if
    `is_exhaustive`.
    """
    results = {}
    for name, case in cases.items():
        if name in exhaustive and not is_exhaustive():
            continue
        keras.utils.set_random_seed(0)
        start = time.monotonic()
        try:
            results[name] = case()
        except Exception:
            results[name] = {"crash": traceback.format_exc()}
        (out / "results.json").write_text(json.dumps(results))
        print(f"{name}: {time.monotonic() - start:.1f} s", file=sys.stderr)
        if after is not None:
            after()
