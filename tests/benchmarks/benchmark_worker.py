"""Runs benchmarks one after another in one process, which imports libraries once: `benchmark_worker.py DIRECTORY < JSON`.

The JSON is a dict of name to a list of words, the script first. What each prints, or its error, goes to DIRECTORY/NAME.txt.
"""

import contextlib
import json
import pathlib
import runpy
import sys
import traceback

BENCHMARKS = pathlib.Path(__file__).parents[2] / "benchmarks"


def main(directory):
    sys.path.insert(0, str(BENCHMARKS))
    for name, words in json.load(sys.stdin).items():
        sys.argv = words
        with open(directory / f"{name}.txt", "w") as printed, contextlib.redirect_stdout(printed):
            try:
                runpy.run_path(words[0], run_name="__main__")
            except SystemExit:
                pass  # A command ends with its status; the next one is to run.
            except Exception:
                traceback.print_exc(file=printed)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
