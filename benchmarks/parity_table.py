"""Parity of each exported mechanism, mixer, recurrence and position with Keras, for the documentation.

    python benchmarks/parity_table.py                              # exports every contract case: minutes
    python benchmarks/parity_table.py --only recurrence-mamba2     # exports the groups of these cases, keeps other rows
    python benchmarks/parity_table.py --results r1.json r2.json    # of runs of tests/contract/export_worker.py

Writes docs/parity.json: the largest difference relative to the output scale of every case in each format, for padded
sequences, causal ones and decoding with the cache.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from measure import versions

ROOT = pathlib.Path(__file__).parents[1]
CONTRACT = ROOT / "tests" / "contract"
KINDS = ("sequence_layers", "mixers_", "cached_mixers_")


def exported(directory, only=None):
    """Runs the exports of the contract in separate processes, because converters leak; returns their results.

    Args:
        directory: path.
        only: names of cases whose groups are exported; None for all.
    """
    sys.path.append(str(CONTRACT))
    import cases

    groups = [index for index, group in enumerate(cases.GROUPS) if only is None or set(only) & set(group)]
    results = {}
    for names in [
        *([["sequence_layers"]] if only is None else []),
        *([f"mixers_{index}", f"cached_mixers_{index}"] for index in groups),
    ]:
        folder = pathlib.Path(directory, names[0])
        folder.mkdir()
        environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
        subprocess.run([sys.executable, CONTRACT / "export_worker.py", folder, *names], env=environment, check=True)
        results |= json.loads((folder / "results.json").read_text())
    return results


def by_case(results):
    """Returns nested dicts of case, form and format to the largest relative difference."""
    sys.path.append(str(CONTRACT))
    import cases

    found = {}
    for run, result in results.items():
        if "error" in result:
            raise SystemExit(f"{run}: {result['error']}")
        if not run.startswith(KINDS):
            continue
        for form, artifact in result["artifacts"].items():
            for figures in artifact["parity"]:
                name, how = _case_of(figures["output"], run, cases.ALL)
                ratios = found.setdefault(name, {}).setdefault(how, {})
                ratios[form] = float(f"{max(ratios.get(form, 0.0), figures['ratio']):.1e}")
    return _in_order(found)


def _in_order(found):
    """Returns rows in the order of the cases."""
    import cases

    return {name: found[name] for name in cases.ALL if name in found}


def _case_of(output, run, names):
    """Returns the case of an output, and the form of the call."""
    plain = output.removeprefix("next_")
    matching = [
        name for name in names if plain == name.replace("-", "_") or plain.startswith(name.replace("-", "_") + "_")
    ]
    name = max(matching, key=len)  # The longest match: a name may be a prefix of another.
    if run.startswith("cached"):
        return name, "with its cache"
    return name, {"padded": "two-sided", "causal": "causal"}.get(plain.rpartition("_")[2], "whole")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", nargs="+", type=pathlib.Path, help="results.json of runs of export_worker.py")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="names of contract cases")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "docs" / "parity.json")
    options = parser.parse_args()
    results = {}
    if options.results:
        for path in options.results:
            results |= json.loads(path.read_text())
    else:
        with tempfile.TemporaryDirectory() as directory:
            results = exported(directory, options.only)
    found = by_case(results)
    if options.only:
        found = _in_order(json.loads(options.json.read_text())["parity"] | found)
    record = {"versions": versions("tensorflow", "ai-edge-litert", "onnxruntime"), "parity": found}
    options.json.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{options.json}: {len(found)} cases")


if __name__ == "__main__":
    main()
