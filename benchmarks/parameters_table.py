"""Parameter counts of every named size of every model, for the documentation.

    python benchmarks/parameters_table.py        # minutes: the largest have a hundred blocks
    python benchmarks/parameters_table.py --seconds 120

Writes docs/parameters.json. Models are built without memory for their weights. Counts are reused if the file of the model
has not changed.
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
from keras_transformer.backend.devices.unallocated import unallocated

FILE = pathlib.Path(__file__).parents[1] / "docs" / "parameters.json"
VOCABULARY = 32000


def sizes(build):
    """Returns a dict of the named sizes of a model."""
    has_size = next(iter(inspect.signature(build).parameters)) == "size"
    return getattr(importlib.import_module(build.__module__), "SIZES", {}) if has_size else {}


def required(build):
    """Returns the names of the required arguments except the size."""
    named = {each.name for each in inspect.signature(build).parameters.values() if each.default is each.empty}
    return named - {"size"}


def count(build, size):
    """Returns the parameter count, or None if the size is unknown or other arguments than a vocabulary are required."""
    if required(build) - {"vocabulary_size"}:
        return None
    try:
        with unallocated():
            return build(size, **dict.fromkeys(required(build), VOCABULARY)).count_params()
    except ValueError as error:
        if "Unknown size" in str(error):  # A size of another model in the same file.
            return None
        raise
    finally:
        keras.backend.clear_session()


def known():
    """Returns a dict of model name to its counts: {"source": hash of its file, "sizes": {name: count}}."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def fingerprint(build):
    """Returns the hash of the file of a model."""
    return hashlib.sha256(pathlib.Path(inspect.getfile(build)).read_bytes()).hexdigest()[:16]


def counts(name, build, found):
    """Returns the counts of all sizes, from `found` if the file has not changed."""
    before = found.get(name, {})
    if before.get("source") == fingerprint(build) and set(before["sizes"]) == set(sizes(build)):
        return before["sizes"]
    return {size: count(build, size) for size in sizes(build)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, help="time limit; finished counts are written")
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
