"""The cases of a worker process, one after the other."""

import json
import traceback

import keras


def run_cases(out, cases, after=None):
    """Runs cases, a dict of name to function; what each returns, or its crash, goes to `results.json`.

    It is written after each case, so that the case of a crash of the process is known.
    """
    results = {}
    for name, case in cases.items():
        keras.utils.set_random_seed(0)
        try:
            results[name] = case()
        except Exception:
            results[name] = {"crash": traceback.format_exc()}
        (out / "results.json").write_text(json.dumps(results))
        if after is not None:
            after()
