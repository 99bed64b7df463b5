"""What users want to do, each tried in every format: it works, or is refused with a remedy that then works.

    python benchmarks/every_situation.py --json situations.json
    python benchmarks/every_situation.py --only mc_dropout_uncertainty lora_adapter_merged

The situations are in `benchmarks/situations`. `--json` keeps the results: what a run does not try stays as it was. The
command fails if a situation falls short. Once each one has a result, docs/situations.md is written.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import sys
import tempfile

from keras_cells import ERROR, FORMATS, in_cell, in_one_line, kept_results
from measure import listed, versions

WORKS, REMEDIED = "works", "refused; with the remedy it works"
FILE = pathlib.Path(__file__).parents[1] / "docs" / "situations.md"
HEAD = """# Situations

What users want to do with a model of theirs, tried in each format by `python benchmarks/every_situation.py`: the model is
exported, run in the runtime of the format and compared with Keras. What is *refused* ends in an error that names a remedy;
the remedy is then applied, and the model with it exported, run and compared.

"""


def tried(name, format):
    """`WORKS`, `REMEDIED` with the error that names the remedy, or "error: ..."."""
    import keras
    from situations import SITUATIONS
    from situations.attempt import Attempt

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        attempt = Attempt(format, folder)
        try:
            SITUATIONS[name](attempt)
        except Exception as error:  # A row of the table names it.
            return f"{ERROR}: {type(error).__name__}: {in_one_line(error)}"
    return f"{REMEDIED}: {'; '.join(attempt.refusals)}" if attempt.refusals else WORKS


def _work(keys):
    """Prints the result of each situation and format as a line of JSON."""
    for key in keys:
        print(json.dumps({"name": key, "found": tried(*key.split())}), flush=True)


def page(found):
    """The text of docs/situations.md, of the results by situation and format."""
    from situations import TOPICS

    lines = [f"| topic | situation | {' | '.join(FORMATS.values())} |", "|---" * (2 + len(FORMATS)) + "|"]
    for topic, module in TOPICS.items():
        for each in module.SITUATIONS:
            cells = [in_cell(found[each.__name__][format]) for format in FORMATS]
            lines.append(f"| {topic} | {in_one_line(each.__doc__)} | {' | '.join(cells)} |")
    whole = sum(not any(each.startswith(ERROR) for each in row.values()) for row in found.values())
    installed = listed(versions("keras", "tensorflow", "onnxruntime"))
    said = f"{whole} of {len(found)} work, or are refused with a remedy that works. ({installed})\n\n"
    return HEAD + said + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="keeps the results")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these situations")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _work(options.worker)
    from situations import SITUATIONS

    keys = [f"{name} {format}" for name in options.only or SITUATIONS for format in options.formats]
    found = kept_results(options.json, keys, lambda format, result: {format: result})
    if all(set(FORMATS) <= set(found.get(name, {})) for name in SITUATIONS):
        FILE.write_text(page(found))
    return 1 if any(each.startswith(ERROR) for row in found.values() for each in row.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
