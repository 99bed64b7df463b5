"""Writes docs/benchmarks.md from the JSON files that benchmarks leave in docs/.

    python benchmarks/benchmarks_page.py

`python benchmarks/NAME.py --json docs/NAME.json` leaves a table: title, versions, rows and notes. It gets a section
of its own. `parity.json` and `parameters.json`, which are larger, are summarized by group.
"""

import argparse
import json
import pathlib
import statistics

DOCS = pathlib.Path(__file__).parents[1] / "docs"
FORMATS = {"saved_model": "SavedModel", "tflite": "TFLite", "onnx": "ONNX"}
_HEAD = """# Benchmarks

Tables that benchmarks of this repository wrote. [Results](results.md) has what was measured against other libraries,
with the command beside each figure.
"""
_FOOT = """## Run your own

Scripts in `benchmarks/` that compare with a peer measure both in turns within one run, and print ratios; below 1,
ours is faster. `--tiny` is a smoke test. `--json docs/NAME.json` keeps the table, and `python
benchmarks/benchmarks_page.py` writes this page from all that are kept.

| to measure | command |
|---|---|
| exported files, against exporters of others | `python benchmarks/export_vs_peers.py` |
| integers throughout, against other quantizers | `python benchmarks/full_int8.py --data-dir DIR` |
| the same after further epochs with the integers | `python benchmarks/full_int8.py --data-dir DIR --train` |
| microcontrollers: the arena, and what an NPU takes | `python benchmarks/micro.py --data-dir DIR` |
| attention at long sequences, against reference code | `python benchmarks/long_sequences.py --lengths 8192` |
| training steps, against Keras, KerasHub, PyTorch and Flax | `python benchmarks/train_step.py --threads 1` |
| a step of a language model with 50,257 words: time and memory | `python benchmarks/large_vocabulary.py --threads 1` |
| checkpoints, against transformers | `python benchmarks/zoo.py` |
| text generation, against other engines | `python benchmarks/real_llm.py` |
| a server under load | `python benchmarks/serving.py --seconds 10 --servers binary json` |
| a bundle of your own, in every runtime | `keras-transformer bench BUNDLE` |
"""


def page(directory: pathlib.Path = DOCS) -> str:
    """Returns the page of all JSON files of a folder."""
    sections = []
    for path in sorted(directory.glob("*.json")):
        found = json.loads(path.read_text())
        if "rows" in found:
            sections.append(section(found))
        elif path.stem in _SUMMARIES:
            sections.append(_SUMMARIES[path.stem](found))
    return "\n".join([_HEAD, *sections, _FOOT])


def section(found: dict) -> str:
    """Returns the section of a table that `measure.Table` wrote: a table for each value of its first column, if few.

    >>> print(section({"title": "Speed", "versions": {"keras": "3"}, "rows": [{"n": 1, "ms": 2.5}], "notes": ["Once."]}))
    ## Speed
    <BLANKLINE>
    keras 3
    <BLANKLINE>
    - Once.
    <BLANKLINE>
    | n | ms |
    | --- | --- |
    | 1 | 2.5 |
    <BLANKLINE>
    """
    notes = [f"- {note}" for note in found["notes"]]
    parts = [f"## {found['title']}", "", _versions(found), "", *notes, *([""] if notes else [])]
    first = next(iter(found["rows"][0]))
    values = list(dict.fromkeys(row[first] for row in found["rows"]))
    if 1 < len(values) <= len(found["rows"]) / 4:
        for value in values:
            rows = [{**row} for row in found["rows"] if row[first] == value]
            parts += [f"### {first}: {value}", "", *_of_all(rows), table(rows), ""]
        return "\n".join(parts)
    return "\n".join([*parts, table(found["rows"]), ""])


def _of_all(rows: list[dict]) -> list[str]:
    """Takes the columns that have one value out of rows; returns a line about them."""
    names = [name for name in rows[0] if all(row.get(name) == rows[0][name] for row in rows)]
    shared = {name: [row.pop(name) for row in rows][0] for name in names}
    line = ", ".join(f"{name} {value}" for name, value in list(shared.items())[1:])
    return [f"For all: {line}.", ""] if line else []


def table(rows: list[dict]) -> str:
    """Returns rows, dicts of column to value, as a Markdown table; a value that a row lacks is empty."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    lines = [columns, ["---"] * len(columns)]
    lines += [[str(row.get(column, "")).replace("|", "\\|") for column in columns] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def parity(found: dict) -> str:
    """Returns the section of `parity_table.py`: the largest and the median difference of each kind of layer."""
    kinds: dict[str, list[dict]] = {}
    for case, forms in found["parity"].items():
        kinds.setdefault(case.rsplit("-", 1)[0], []).extend(forms.values())
    rows = []
    for kind, forms in sorted(kinds.items()):
        row = {"layers": kind.replace("-", " "), "files": sum(map(len, forms))}
        for name, title in FORMATS.items():
            values = [form[name] for form in forms if name in form]
            row[title] = f"{max(values):.1e} ({statistics.median(values):.1e})"
        rows.append(row)
    lines = [
        "## Parity of layers with Keras",
        "",
        "Largest difference relative to the output scale, and the median in parentheses, over all layers of a kind, in the",
        f"forms that they have: two-sided, causal, with a cache (`python benchmarks/parity_table.py`; {_versions(found)}).",
        "Each layer has its own figures on its page.",
        "",
        table(rows),
        "",
    ]
    return "\n".join(lines)


def parameters(found: dict) -> str:
    """Returns the section of `parameters_table.py`: the smallest and the largest size of each model."""
    rows = []
    for name, model in sorted(found.items()):
        counts = {size: count for size, count in model["sizes"].items() if count}
        if counts:
            small, large = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
            row = {"model": f"[`{name}`](models/{name}.md)", "sizes": len(counts), "smallest": _size(small, counts)}
            rows.append(row | {"largest": _size(large, counts) if large != small else ""})
    text = (
        "Counted from the models, without heads (`python benchmarks/parameters_table.py`); every size is on the page of"
        " its model."
    )
    return "\n".join(["## Parameters of the named sizes", "", text, "", table(rows), ""])


def _size(name: str, counts: dict[str, int]) -> str:
    return f"`{name}`: {counts[name] / 1e6:,.1f} M"


def _versions(found: dict) -> str:
    return ", ".join(f"{package} {version}" for package, version in found["versions"].items())


_SUMMARIES = {"parity": parity, "parameters": parameters}


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    (DOCS / "benchmarks.md").write_text(page())


if __name__ == "__main__":
    main()
