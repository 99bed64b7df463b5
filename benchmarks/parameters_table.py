"""How many parameters every size of every model has, for the pages of the documentation.

    python benchmarks/parameters_table.py        # minutes: the largest have a hundred blocks
    python benchmarks/parameters_table.py --seconds 120

Writes docs/parameters.json. Models are built without memory for their weights. What has been counted, and whose file has not
changed since, is not counted again.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import hashlib
import importlib
import inspect
import json
import pathlib
import time

import keras

from keras_transformer import models
from keras_transformer.backend.unallocated import unallocated

FILE = pathlib.Path(__file__).parents[1] / "docs" / "parameters.json"
VOCABULARY = 32000


def sizes(build):
    """The sizes that a model has by name: dict."""
    has_size = next(iter(inspect.signature(build).parameters)) == "size"
    return getattr(importlib.import_module(build.__module__), "SIZES", {}) if has_size else {}


def required(build):
    """Names of the arguments, besides the size, that must be given."""
    named = {each.name for each in inspect.signature(build).parameters.values() if each.default is each.empty}
    return named - {"size"}


def count(build, size):
    """How many weights it has; None where it has no size of this name, or more is required than a vocabulary."""
    if required(build) - {"vocabulary_size"}:
        return None
    try:
        with unallocated():
            return build(size, **dict.fromkeys(required(build), VOCABULARY)).count_params()
    except ValueError as error:
        if "Unknown name" in str(error):  # Of another model in the same file.
            return None
        raise
    finally:
        keras.backend.clear_session()


def known():
    """Name of a model to what has been counted of it: {"source": hash of its file, "sizes": {name: count}}."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def fingerprint(build):
    """Hash of the file of a model."""
    return hashlib.sha256(pathlib.Path(inspect.getfile(build)).read_bytes()).hexdigest()[:16]


def counts(name, build, found):
    """Those of all sizes, taken from `found` where they are there and the file is as it was."""
    before = found.get(name, {})
    if before.get("source") == fingerprint(build) and set(before["sizes"]) == set(sizes(build)):
        return before["sizes"]
    return {size: count(build, size) for size in sizes(build)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help="stop after so many; what was counted by then is written")
    options = parser.parse_args()
    found, start = known(), time.time()
    table = {}
    for name, build in models.MODELS.items():
        if options.seconds and time.time() - start > options.seconds:
            table |= {later: found[later] for later in models.MODELS if later in found and later not in table}
            break
        table[name] = {"source": fingerprint(build), "sizes": counts(name, build, found)}
        FILE.write_text(json.dumps(found | table, indent=1) + "\n")
    FILE.write_text(json.dumps(table, indent=1) + "\n")
    print(f"{FILE}: {len(table)} of {len(models.MODELS)} models")


if __name__ == "__main__":
    main()
