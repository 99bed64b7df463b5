"""`python -m tests.fuzz --minutes 10`: mutates inputs of every kind until the time is over.

Each case runs in a forked process with limits on time and memory. A crash, a hang, an escape (a file outside of its folder
is read or written) or an untyped error is printed with the folder that reproduces it, and makes the exit status 1. The same
seed makes the same cases: `--targets gguf --seed 3 --case 17` runs one again.
"""

import argparse
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from tests.fuzz import sandbox
from tests.fuzz.targets import TARGETS, generator_of

_SHOWN = 20  # Findings of a target that are kept.


def main(arguments=None):
    """Runs the command. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=8.0, help="time for all targets together (default: 8)")
    parser.add_argument("--targets", nargs="+", choices=sorted(TARGETS), default=list(TARGETS), help="default: all")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations (default: 0)")
    parser.add_argument("--case", type=int, help="run this case of one target only")
    parser.add_argument(
        "--findings", type=pathlib.Path, default=pathlib.Path("fuzz-findings"), help="folder of findings"
    )
    parser.add_argument("--seeds", type=pathlib.Path, help="folder of the bundles to mutate; made if it is missing")
    parser.add_argument("--summary", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    os.environ.update({"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"})
    with tempfile.TemporaryDirectory() as scratch:
        seeds = options.seeds or pathlib.Path(scratch, "seeds")
        if len(options.targets) == 1:
            summary = fuzz(options.targets[0], options, seeds, pathlib.Path(scratch).resolve())
            if options.summary:
                options.summary.write_text(json.dumps(summary))
                return 0
            summaries = {options.targets[0]: summary}
        else:
            summaries = {name: _in_process(name, options, seeds, scratch) for name in options.targets}
    _print_table(summaries)
    return int(any(each["findings"] for each in summaries.values()))


def _in_process(name, options, seeds, scratch):
    """Fuzzes a target in a process of its own, which imports only what the target needs."""
    summary = pathlib.Path(scratch, f"{name}.json")
    words = ["--targets", name, "--minutes", str(options.minutes / len(options.targets)), "--seed", str(options.seed)]
    words += ["--findings", str(options.findings), "--seeds", str(seeds), "--summary", str(summary)]
    status = subprocess.run([sys.executable, "-m", "tests.fuzz", *words], check=False).returncode
    if summary.exists():
        return json.loads(summary.read_text())
    return {"cases": {}, "findings": [f"the process of the target ended with status {status}"]}


def fuzz(name, options, seeds, scratch, target=None):
    """Returns the summary of a target: dict of "cases", the number of each outcome, and "findings"."""
    target = target or TARGETS[name]()
    target.prepare(seeds)
    root, cases, findings = scratch / "work", collections.Counter(), []
    root.mkdir()
    outside = root / "outside"
    outside.write_bytes(os.urandom(64))
    content, watch = outside.read_bytes(), sandbox.Watch(root, outside)
    deadline, number = time.monotonic() + 60 * options.minutes, options.case or 0
    while time.monotonic() < deadline:
        shutil.rmtree(root / "case", ignore_errors=True)
        (root / "case").mkdir()
        target.make(generator_of(options.seed, name, number), root / "case")
        kept = scratch / "kept"
        shutil.copytree(root / "case", kept, symlinks=True)
        watch.events()
        outcome = sandbox.run(lambda: target.run(root / "case"), root / "case", target.seconds)
        events = watch.events()
        if events or outside.read_bytes() != content:
            outcome = f"escape {events[:3]}"
        watch.events()
        word, is_finding = judged(outcome, target.errors)
        cases[word] += 1
        if is_finding:
            _report(name, number, options, outcome, kept, findings)
        shutil.rmtree(kept)
        number += 1
        if options.case is not None:
            break
    return {"cases": cases, "findings": findings}


def judged(outcome, errors):
    """Returns the word of an outcome for the table, and whether it is a finding."""
    kind, _, rest = outcome.partition(" ")
    if kind == "done":
        return rest, False
    if kind == "raised":
        classes, _, message = rest.partition(": ")
        names = classes.split(".")
        if not set(names) & set(errors):
            return f"untyped {names[0]}", True
        return (f"{names[0]} of several lines", True) if "\n" in message else (names[0], False)
    return (kind if kind in ("escape", "memory") else outcome[:40]), True


def _report(name, number, options, outcome, kept, findings):
    folder = options.findings / f"{name}-{options.seed}-{number}"
    if len(findings) < _SHOWN:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder, symlinks=True)
        (folder / "outcome.txt").write_text(f"{outcome}\n")
        again = f"python -m tests.fuzz --targets {name} --seed {options.seed} --case {number}"
        print(f"{name} {number}: {' '.join(outcome.split())[:300]}\n  {folder}\n  {again}", flush=True)
    findings.append(f"{number}: {outcome[:200]}")


def _print_table(summaries):
    print(f"\n{'target':<14}{'cases':>8}{'findings':>10}  outcomes")
    for name, summary in summaries.items():
        cases = collections.Counter(summary["cases"])
        words = ", ".join(f"{count} {word}" for word, count in cases.most_common(8))
        print(f"{name:<14}{cases.total():>8}{len(summary['findings']):>10}  {words}")


if __name__ == "__main__":
    sys.exit(main())
