"""The process of one runtime of a benchmark: replies to each line of JSON on stdin with a line of JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.bundle.manifest import read_manifest
from keras_transformer.export.data.axes import sizes_of
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import ExportError, InputError
from keras_transformer.export.loading.load import load
from keras_transformer.utils.errors import library_exceptions, one_line
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.export.runtime.runtime_model import RuntimeModel

_WARM_UP = 3
_LENGTH, _NEW = 32, 64


class _Case:
    """A call to measure.

    Args:
        name: name of the signature.
        sizes: dict of axis name to size.
        count: examples or tokens in one call.
        unit: "examples" or "tokens".
        run: the call.
    """

    def __init__(self, name: str, sizes: Mapping[str, int], count: int, unit: str, run: Callable[[], object]) -> None:
        self.record = {"name": name, "sizes": sizes, "count": count, "unit": unit}
        self.run = run

    def seconds(self, calls: int) -> list[float]:
        found = []
        for _ in range(calls):
            start = time.perf_counter()
            self.run()
            found.append(time.perf_counter() - start)
        return found


def open_cases(
    bundle: Path, backend: str, sizes: Mapping[str, int], num_threads: int | None
) -> tuple[list[_Case], float]:
    """Returns the cases of a bundle and the loading time in seconds."""
    manifest = read_manifest(bundle)
    _import(backend)
    start = time.perf_counter()
    model = load(bundle, backend, _first_signature(manifest, backend), num_threads)
    seconds = time.perf_counter() - start
    if hasattr(model, "steps"):
        return _language_cases(model, sizes), seconds
    names = list(manifest.artifact(backend).signatures)
    models: dict[str, RuntimeModel] = {names[0]: model}
    for name in names[1:]:
        start = time.perf_counter()
        models[name] = load(bundle, backend, name, num_threads, check=False)
        seconds += time.perf_counter() - start
    known = {axis for each in models.values() for spec in each.inputs for axis in spec.axes if axis}
    for axis in sizes:
        if axis not in known:
            raise InputError(
                axis, f"one of the axes {', '.join(sorted(known)) or '(none is dynamic)'}", "an unknown axis"
            )
    return [_case(name, each, sizes) for name, each in models.items()], seconds


def _first_signature(manifest: Manifest, backend: str) -> str | None:
    return None if manifest.generation else next(iter(manifest.artifact(backend).signatures))


def _import(backend: str) -> None:
    """Imports the runtime, whose time is not part of loading a bundle."""
    import importlib

    from keras_transformer.export.formats import get_format

    library = get_format(backend).library
    with library.required_by(f"backend '{backend}'"):
        importlib.import_module(library.module)


def _case(name: str, model: RuntimeModel, sizes: Mapping[str, int]) -> _Case:
    own = {axis for spec in model.inputs for axis in spec.axes if axis}
    arrays = model.example(**{axis: size for axis, size in sizes.items() if axis in own})
    found = sizes_of(model.inputs, arrays)
    return _Case(name, found, found.get("batch", 1), "examples", lambda: model(arrays))


def _language_cases(model: Any, sizes: Mapping[str, int]) -> list[_Case]:
    """The prefill up to the first logits, and one decoding step."""
    steps = model.steps
    for axis in sizes:
        if axis not in ("batch", "length"):
            raise InputError(axis, "one of the axes batch, length", "an unknown axis")
    batch, length = sizes.get("batch", 1), sizes.get("length", _LENGTH)
    if steps.spec.max_length is not None:
        length = sizes.get("length", min(length, -(-steps.spec.max_length // 2)))
        if not 0 < length < steps.spec.max_length:
            raise InputError("length", f"a size of 1 to {steps.spec.max_length - 1}", repr(length))
    if batch < 1 or length < 1:
        raise InputError("batch, length", "sizes of 1 or more", f"{batch}, {length}")
    rng = np.random.default_rng(0)
    tokens = rng.integers(0, steps.spec.vocabulary_size, (batch, length)).astype("int32")
    source = steps.make_source(tokens)
    prompt = tokens if source is None else tokens[:, :1]
    read, space = prompt.shape[1], _NEW
    if steps.spec.max_length is not None:
        space = min(space, steps.spec.max_length - read)

    def prefill():
        cache = steps.init_cache(batch, read + space, source)
        return steps.prefill(prompt, np.full(batch, read, "int32"), cache)[1]

    state = {"cache": prefill(), "taken": 0}

    def decode():
        index = np.full(batch, read + state["taken"] % space, "int32")
        state["taken"] += 1
        state["cache"] = steps.decode_step(tokens[:, :1], state["cache"], index)[1]

    shape = {"batch": batch, "length": length}
    return [
        _Case("prefill", shape, tokens.size, "tokens", prefill),
        _Case("decode", {"batch": batch, "cache_length": read + space}, batch, "tokens", decode),
    ]


def peak_memory() -> int:
    """Returns the peak memory of this process in bytes."""
    try:
        with open("/proc/self/status") as file:  # `ru_maxrss` includes the parent process.
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main() -> int:
    """Answers until the end of stdin; returns the exit status."""
    cases = None
    for line in sys.stdin:
        question = json.loads(line)
        try:
            if cases is None:
                cases, seconds = open_cases(**question)
                for case in cases:
                    case.seconds(_WARM_UP)
                answer = {"cases": [case.record for case in cases], "seconds": seconds}
            else:
                answer = {"seconds": [case.seconds(question["calls"]) for case in cases], "peak_memory": peak_memory()}
        except library_exceptions(ExportError, ImportError) as error:
            print(json.dumps({"error": one_line(error)}), flush=True)
            return 1
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
