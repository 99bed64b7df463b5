"""How many small changes of the code the tests notice.

    python benchmarks/mutants.py --package attention --count 200
    python benchmarks/mutants.py --package export/verification --shard 1/4 --state mutants

A mutant changes one comparison, operator, constant, condition, argument or call of a function; see `mutation/mutate.py`.
Tests that call the function run until one fails, the quickest first. Which tests call it is recorded once. Mutants that
compute the same as the code are listed with the reason in `mutation/equivalent.toml`; a test that runs the package in
another process does not see them and counts for nothing. With `--state`, what is found is kept and a run goes on where
another ended. The command fails if a mutant survives.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import random
import sys
import tempfile
import tomllib
from types import CodeType, FunctionType

from measure import Table, versions
from mutation.mutate import mutants_of, mutated
from mutation.session import Tests

ROOT = pathlib.Path(__file__).parents[1]
EQUIVALENT = pathlib.Path(__file__).parent / "mutation" / "equivalent.toml"
# The tests of each package. Others are taken where they call it.
TESTS = {
    "attention": ["tests/attention", "tests/layers"],
    "positions": ["tests/positions", "tests/attention/test_reference_parity.py"],
    "generation": ["tests/generation"],
    "text": ["tests/text"],
    "quantization": ["tests/quantization"],
    "checkpoints": ["tests/checkpoints"],
    "export/verification": ["tests/export"],
    "export/runtime": ["tests/export"],
    "export/quantization": ["tests/export"],
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", action="append", choices=TESTS, help="several times for several (default: all)")
    parser.add_argument("--count", type=int, default=120, help="mutants of a package (default: 120)")
    parser.add_argument("--seed", type=int, default=0, help="of their choice (default: 0)")
    parser.add_argument("--seconds", type=float, default=40, help="of tests for a mutant (default: 40)")
    parser.add_argument("--marks", default="not slow and not exhaustive", help="the tests, as of pytest's -m")
    parser.add_argument("--shard", default="1/1", metavar="K/N", help="every Nth mutant")
    parser.add_argument("--state", type=pathlib.Path, metavar="FOLDER", help="keep what is found there")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write the table as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        state = options.state or pathlib.Path(folder)
        state.mkdir(parents=True, exist_ok=True)
        found = {package: of_package(package, options, state) for package in options.package or TESTS}
    return show(found, options)


def of_package(package, options, state):
    """The outcomes of a package's mutants, by key: the test that fails, `None`, or a reason."""
    found, name = {}, package.replace("/", "_")
    outcomes = state / f"{name}.{options.shard.replace('/', 'of')}.jsonl"
    if outcomes.exists():
        found = dict(map(json.loads, outcomes.read_text().splitlines()))
    chosen = [each for each in drawn(package, options) if each.key not in found]
    tests = Tests(ROOT)

    def run():
        called = calls(tests, state / f"{name}.calls.json")
        with outcomes.open("a") as file:
            for mutant in chosen:
                found[mutant.key] = outcome(tests, mutant, called, options.seconds)
                print(json.dumps([mutant.key, found[mutant.key]]), file=file, flush=True)

    if chosen:
        tests.collect(TESTS[package], options.marks, run)
    return found


def drawn(package, options):
    """The mutants of a package that this run tries: as many of each as `count` says, drawn from all functions alike."""
    folder = ROOT / (package if package.startswith("export/") else f"keras_transformer/{package}")
    every = [each for path in sorted(folder.rglob("*.py")) for each in mutants_of(ROOT, path)]
    unique = list({each.key: each for each in every}.values())
    chosen = random.Random(options.seed).sample(unique, min(options.count, len(unique)))
    shard, shards = map(int, options.shard.split("/"))
    return chosen[shard - 1 :: shards]


def calls(tests, path):
    """Dict of function to the tests that call it, each with its seconds, the quickest first."""
    if path.exists():
        return json.loads(path.read_text())
    called = {}
    by_file = {}
    for name in tests.names():
        by_file.setdefault(name.split("::")[0], []).append(name)
    for names in by_file.values():
        found = tests.in_fork(names, lambda: None, 1200, traced=True)
        for each in found if isinstance(found, list) else []:
            for function in each["functions"] if each["passed"] else []:
                called.setdefault(function, []).append([each["seconds"], each["test"]])
    called = {function: sorted(each) for function, each in called.items()}
    path.write_text(json.dumps(called))
    return called


def outcome(tests, mutant, called, seconds):
    """The name of a test that notices a mutant; None if none does."""
    chosen, spent = [], 0.0
    for cost, name in called.get(f"{mutant.path}:{mutant.function}", []):
        if chosen and spent + cost > seconds:
            break
        chosen.append(name)
        spent += cost
    if not chosen:
        return None
    found = tests.in_fork(chosen, lambda: put(mutant), seconds)
    if not isinstance(found, list):
        return found
    return next((each["test"] for each in found if not each["passed"]), None)


def put(mutant):
    """Puts a mutant in the place of the function that is loaded."""
    import gc

    path = ROOT / mutant.path
    new = code_of(compile(mutated(ROOT, mutant), str(path), "exec"), mutant)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            code = each.__code__
            same = (code.co_qualname, code.co_firstlineno) == (mutant.function, mutant.line)
            if same and code.co_filename == str(path):
                each.__code__ = new


def code_of(module, mutant):
    """The code object of a function in that of its module."""
    pending = [module]
    while pending:
        code = pending.pop()
        if (code.co_qualname, code.co_firstlineno) == (mutant.function, mutant.line):
            return code
        pending += [each for each in code.co_consts if isinstance(each, CodeType)]
    raise LookupError(mutant.key)


def show(found, options):
    """Prints the table; returns whether a mutant survives that is not equivalent."""
    equivalent = tomllib.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    table = Table("Mutants", versions("keras-transformer", "tensorflow", "keras"))
    left = []
    for package, outcomes in found.items():
        survived = [key for key, name in outcomes.items() if name is None and key not in equivalent]
        same = sum(name is None and key in equivalent for key, name in outcomes.items())
        killed = sum(name is not None for name in outcomes.values())
        rate = killed / max(1, killed + len(survived))
        table.add(
            package=package,
            mutants=len(outcomes),
            killed=killed,
            equivalent=same,
            survived=len(survived),
            rate=f"{rate:.1%}",
        )
        left += survived
    for key in left:
        table.note(key)
    print(table)
    if options.json:
        options.json.write_text(json.dumps({"found": found, "survived": left}, indent=1))
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
