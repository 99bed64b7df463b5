"""Language models of KerasHub with their cache, tokenizer and generation, in each format.

    python benchmarks/keras_hub_texts.py --json keras_hub_texts.json
    python benchmarks/keras_hub_texts.py --only GemmaCausalLM GPT2CausalLM --formats onnx

Each `CausalLM` of the installed KerasHub is built small, with random weights and a tokenizer trained on the spot
(`keras_hub_tasks.py`), exported, and asked for 64 tokens after a prompt, greedily: they are compared with those of
KerasHub's own loop, `task.generate` with the sampler "greedy". `--json` keeps the results: what a run does not try stays as
it was. The command fails if tokens differ, or an export ends in an error that is none of the package's own. Once the file
holds a result of each class in some format, the table of docs/cookbook/from_keras_hub.md is written.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import pathlib
import sys
import tempfile

from keras_cells import ERROR, FORMATS, NO_CASE, in_one_line, is_fault, kept_results
from measure import listed, versions

FILE = pathlib.Path(__file__).parents[1] / "docs" / "cookbook" / "from_keras_hub.md"
MARK = "<!-- Below is printed by benchmarks/keras_hub_texts.py. -->\n"
PROMPT, NEW = "The quick brown fox", 64
EQUAL = "equal"


def try_cell(name):
    """The result of a class in a format: `"GemmaCausalLM onnx"`."""
    import keras
    from keras_hub_tasks import build

    name, format = name.split()
    keras.backend.clear_session()
    try:
        task = build(name)
    except Exception as error:
        return f"{NO_CASE}: {type(error).__name__}: {in_one_line(error)[:160]}"
    return compared(task, format)


def compared(task, format):
    """Exports a task and compares its tokens with KerasHub's; `"equal"`, or what is wrong."""
    from keras_hub_tasks import greedy_tokens

    from keras_transformer.export import ExportError, ExportOptions, GenerationOptions, export, load

    options = ExportOptions(generation=GenerationOptions(whole_graph=False, prefill_buckets=(32,), static_length=96))
    try:
        with tempfile.TemporaryDirectory() as folder:
            export(task, f"{folder}/bundle", [format], progress=False, options=options)
            prompt, expected = greedy_tokens(task, PROMPT, NEW)
            bundle = load(f"{folder}/bundle", format)
            ends = set(bundle.spec.end_ids)
            found = [int(token) for token in bundle.generate(prompt, max_new_tokens=NEW)]
    except ExportError as error:
        return f"{type(error).__name__}: {in_one_line(error)[:160]}"
    except Exception as error:
        return f"{ERROR}: {type(error).__name__}: {in_one_line(error)[:160]}"
    end = next((place for place, token in enumerate(expected) if token in ends), NEW)
    same = sum(one == other for one, other in zip(found, expected[:end], strict=False))
    return EQUAL if found == expected[:end] else f"WRONG: {same} of {end} tokens"


def _work(names):
    """Prints the result of each cell as a line of JSON."""
    for name in names:
        print(json.dumps({"name": name, "found": try_cell(name)}), flush=True)


def table(found):
    """The rows of the page, of the results by class and format."""
    from keras_hub_tasks import classes

    lines = [f"| family | class | tokenizer | {' | '.join(FORMATS.values())} |", "|---" * (3 + len(FORMATS)) + "|"]
    for name, row in sorted(found.items()):
        cls = classes()[name]
        family = cls.__module__.split(".")[3]
        tokenizer = getattr(getattr(cls.preprocessor_cls, "tokenizer_cls", None), "__name__", "–")
        lines.append(f"| {family} | {name} | {tokenizer} | {' | '.join(row.get(each, '–') for each in FORMATS)} |")
    counts = ", ".join(
        f"{title} {sum(row.get(each) == EQUAL for row in found.values())}" for each, title in FORMATS.items()
    )
    installed = listed(versions("keras", "keras-hub", "tensorflow"))
    return f"{len(found)} classes ({installed}), {NEW} tokens equal: {counts}.\n\n" + "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="keeps the results")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these classes")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _work(options.worker)
    from keras_hub_tasks import classes

    tried = [f"{name} {format}" for name in options.only or sorted(classes()) for format in options.formats]
    found = kept_results(options.json, tried, lambda format, result: {format: result})
    if all(found.get(name) for name in classes()):
        FILE.write_text(FILE.read_text().partition(MARK)[0] + MARK + "\n" + table(found))
    return 1 if any(is_fault(row.get(format, "")) for row in found.values() for format in FORMATS) else 0


if __name__ == "__main__":
    sys.exit(main())
