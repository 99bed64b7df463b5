"""Random small graphs of Keras, exported in each format and compared with Keras on inputs of all regions.

    python benchmarks/random_models.py --minutes 30
    python benchmarks/random_models.py --graphs 50 --seed 7000 --formats onnx --keep findings

A graph has 3 to 10 nodes: functions, layers, loops and branches, with weights, shapes and types drawn at random; see
`random_graphs/templates.py`. Its files are run on inputs that the export never saw: zeros, large and tiny numbers, the ends
of each integer type, infinities and NaN, in batches of 1 to 16 and lengths of 1 to 33. What differs by more than noise on
each tensor explains is reduced to its smallest graph, printed as a script, and kept. What the report of an export says is
counted apart: numbers beyond those for which files were compared, and NaN in an input of which it names a difference. The
command fails if a file is wrong, a sound one is refused, or an export ends in an error that is none of the package's own.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import collections
import gc
import json
import pathlib
import re
import subprocess
import sys
import threading
import time

from measure import Table, versions
from random_graphs.regions import FLOATS as REGIONS

FORMATS = ("saved_model", "tflite", "onnx")
# Graphs of a worker, whose converters leak, and the seconds that one may take.
BATCH, SECONDS = 60, 240
# Reductions of findings that look alike.
_ALIKE = 3


def work(seeds, options):
    """Prints the outcomes of each seed as a line of JSON."""
    from random_graphs.draw import drawn
    from random_graphs.judge import outcomes
    from random_graphs.reference import CAUGHT, FAULTS

    gc.freeze()  # What libraries hold is not looked through with each graph.
    for seed in seeds:
        start = time.monotonic()
        try:
            graph = drawn(seed)
            found = outcomes(graph, seed, options.formats, regions=options.regions)
        except Exception as error:  # A graph that Keras does not build as a model.
            print(json.dumps({"seed": seed, "none": f"{type(error).__name__}: {error}"[:300]}), flush=True)
            continue
        record = {"seed": seed, "nodes": len(graph.nodes), "code": [node.expression for node in graph.nodes]}
        record["found"] = {
            format: {"kind": each.kind, "detail": each.detail, "region": each.region} for format, each in found.items()
        }
        record["seconds"] = round(time.monotonic() - start, 1)
        print(json.dumps(record), flush=True)
        for format, each in found.items():
            if each.kind in (*FAULTS, CAUGHT):
                print(json.dumps(_finding(graph, seed, format, each)), flush=True)


def _finding(graph, seed, format, outcome):
    """A reduced finding as a record: its script, and what its file does."""
    from random_graphs.reduce import reduced

    graph, outcome = reduced(graph, seed, format, outcome)
    return {
        "finding": f"{format}-{seed}",
        "format": format,
        "kind": outcome.kind,
        "detail": outcome.detail,
        "region": outcome.region,
        "nodes": [node.text for node in graph.nodes],
        "script": graph.code(seed, format, outcome.arrays),
    }


def records(options):
    """Yields the records of workers until the time is over."""
    until = time.monotonic() + 60 * options.minutes
    first, end = options.seed, options.seed + (options.graphs or sys.maxsize)
    while time.monotonic() < until and first < end:
        last = min(first + BATCH, end)
        command = [sys.executable, __file__, "--worker", str(first), str(last), "--formats", *options.formats]
        command += ["--regions", *options.regions]
        # Nothing of a worker is left behind where its time is over.
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            while first < last:
                watch = threading.Timer(SECONDS, process.kill)
                watch.start()
                line = process.stdout.readline()
                watch.cancel()
                if not line:
                    break
                if line.startswith("{"):
                    record = json.loads(line)
                    first = record.get("seed", first - 1) + 1
                    yield record
                if time.monotonic() > until:
                    process.kill()
                    return
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            status = process.wait()
        if first < last:  # The worker ended with this seed.
            found = {
                format: {"kind": "CRASH", "detail": f"status {status}", "region": ""} for format in options.formats
            }
            yield {"seed": first, "nodes": 0, "code": [], "found": found, "seconds": SECONDS}
            first += 1


def likeness(finding):
    """What findings of one cause have in common, most likely: the format and the names of what its nodes call."""
    called = sorted({name for text in finding["nodes"] for name in re.findall(r"[A-Za-z_]\w+(?=\()", text)})
    return finding["format"], finding["kind"], " ".join(called)


def reason(found):
    """A refusal without names and numbers, for the counts."""
    text = re.sub(r"\(docs/.*", "", found["detail"])
    return re.sub(r"'[^']*'|\[[^\]]*\]|-?\d[\d.e+-]*", "…", text)[:140]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="time for drawing graphs (default: 10)")
    parser.add_argument("--graphs", type=int, help="at most so many")
    parser.add_argument("--seed", type=int, default=0, help="of the first graph; the next ones count on (default: 0)")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--regions", nargs="+", choices=REGIONS, default=list(REGIONS), help="those of the inputs")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="also write all outcomes")
    parser.add_argument("--keep", type=pathlib.Path, metavar="FOLDER", help="write the script of each finding there")
    parser.add_argument("--worker", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(range(*options.worker), options)
    graphs, findings, counts, refusals = [], [], collections.Counter(), collections.Counter()
    for record in records(options):
        if "finding" in record:
            findings.append(record)
            _show(record, findings, options)
        elif "found" in record:
            graphs.append(record)
            for format, found in record["found"].items():
                counts[format, found["kind"]] += 1
                if found["kind"] == "refused":
                    refusals[format, reason(found)] += 1
        if options.json:
            options.json.write_text(json.dumps({"graphs": graphs, "findings": findings}, indent=1))
    return _summary(graphs, findings, counts, refusals, options)


def _show(record, findings, options):
    alike = sum(likeness(each) == likeness(record) for each in findings)
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
        script = f'"""{record["kind"]}: {record["detail"]}"""\n\n{record["script"]}'
        (options.keep / f"{record['finding']}.py").write_text(script)
    if alike <= _ALIKE:
        print(f"{record['finding']} {record['kind']} ({record['region']}): {record['detail'][:300]}")
        print("\n".join(f"    {text}" for text in record["nodes"]), flush=True)


def _summary(graphs, findings, counts, refusals, options):
    from random_graphs.reference import FAULTS

    table = Table(
        f"Random models: {len(graphs)} graphs", versions("tensorflow", "keras", "onnxruntime", "ai-edge-litert")
    )
    for kind in sorted({kind for _, kind in counts}):
        table.add(outcome=kind, **{format: counts[format, kind] for format in options.formats})
    for (format, text), count in refusals.most_common(40):
        table.note(f"{count} refused in {format}: {text}")
    for alike, count in collections.Counter(map(likeness, findings)).most_common():
        table.note(f"{count} of {' '.join(alike)}")
    print(table)
    return int(any(kind in FAULTS for _, kind in counts))


if __name__ == "__main__":
    sys.exit(main())
