"""LiteRT on the CPU."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import numpy as np

from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.runtime.libraries import LITERT, TFLITE
from keras_transformer.export.runtime.runtime import Runtime
from keras_transformer.export.tflite.compiled_file import CacheTensor, CompiledFile
from keras_transformer.export.tflite.engine import obstacle
from keras_transformer.export.tflite.flatbuffer.checks import check_flatbuffer
from keras_transformer.export.tflite.flatbuffer.signatures import content_of, has_dynamic_loop
from keras_transformer.export.tflite.weight_cache import WeightCache
from keras_transformer.utils.captured_stderr import captured_stderr
from keras_transformer.utils.freed_memory import give_back

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from keras_transformer.export.data.array_spec import ArraySpec

_FIRST_CALLS = threading.Lock()
# Files from this size on have an interpreter for each signature that is called.
_LARGE = 2**26


class TFLiteRuntime:
    """All signatures of a file in LiteRT on the CPU, without delegates for operations of other libraries.

    Those of fixed shapes run in a `CompiledModel`, which packs the weights of the file once for all of them. The others run
    in the interpreter: see `engine.Obstacle`. An interpreter packs the weights of all signatures of its file; those of a
    large file therefore have one each, which is made in the first call: see `flatbuffer.signatures`.

    Both have one set of buffers, so that calls from several threads run one after another. To run them in parallel, `load`
    once for each thread.

    Args:
        path: path of the file. It is checked before anything runs: see `check_flatbuffer`.
        signature: name of the signature that a call runs.
        num_threads: threads for one call.
        weights: `WeightCache`: where packed weights are kept; None for memory.

    Raises:
        MissingLibraryError: LiteRT is not installed.
        ValueError: the file is damaged.
    """

    def __init__(self, path: str, signature: str, num_threads: int, weights: WeightCache | None = None) -> None:
        with LITERT.required_by(f"backend '{TFLITE}'"):
            from ai_edge_litert.interpreter import Interpreter

        # LiteRT 2.1 to 2.3 moves operators together for its delegates. Among tensors of dynamic shapes it then reads memory
        # that was freed: a call computes wrong values, mostly the second one of the same shapes.
        options = {"num_threads": num_threads, "experimental_disable_delegate_clustering": True}
        self._open = functools.partial(Interpreter, **options)
        self._path, self._num_threads = pathlib.Path(path), num_threads
        self._names = list(self._open(model_path=path).get_signature_list())  # Verifies the flatbuffer itself.
        self._weights = weights or WeightCache(self._path)
        if not self._weights.was_opened:  # The check of a large file takes seconds.
            check_flatbuffer(path)
        self._compiled: CompiledFile | None = None
        self._obstacle = functools.cache(functools.partial(obstacle, self._path))
        is_large = self._path.stat().st_size >= _LARGE
        self._is_split = is_large and len(self._names) > 1
        self._interpreter = functools.cache(functools.partial(self._open, model_path=path))
        if is_large:
            give_back()  # What was checked.
        self._runners: dict[str, Any] = {}
        self._signature = signature
        self._lock = threading.Lock()
        self._output_context: Callable[[], AbstractContextManager[object]] = _first_call

    def signatures(self) -> list[str]:
        """Names of all signatures in the file."""
        return self._names

    def is_compiled(self, signature: str) -> bool:
        """Whether a signature runs in a `CompiledModel`."""
        return signature in self._names and self._obstacle(signature) is None

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return self.call(self._signature, arrays)

    def call(self, signature: str, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Runs any signature of the file."""
        if self.is_compiled(signature):
            found = self.step(signature, arrays, {})
            return {name: each for name, each in found.items() if isinstance(each, np.ndarray)}
        with self._lock, self._output_context():
            self._output_context = contextlib.nullcontext
            if signature not in self._runners:
                runs_twice = signature in self._names and has_dynamic_loop(self._path, signature)
                self._runners[signature] = PlannedRunner(self._runner(signature), runs_twice)
            return self._runners[signature](arrays)

    def step(
        self,
        signature: str,
        arrays: Mapping[str, np.ndarray],
        cache: Mapping[str, CacheTensor],
        in_place: Collection[str] = (),
    ) -> dict[str, np.ndarray | CacheTensor]:
        """Runs a signature that `is_compiled`, with tensors that are not copied: see `CompiledFile.run`."""
        with self._lock, _first_call() if self._compiled is None else contextlib.nullcontext():
            if self._compiled is None:
                self._compiled = CompiledFile(self._num_threads, self._weights)
            return self._compiled.run(signature, arrays, cache, in_place)

    def forget(self, kept: str) -> None:
        """Gives the memory of all signatures of a large file back, but that of one."""
        with self._lock:
            others = [name for name in self._runners if self._is_split and name != kept]
            for name in others:
                del self._runners[name]
            if self._is_split and self._compiled is not None and not self.is_compiled(kept):
                self._compiled = None
                others.append(kept)
        if others:
            give_back()

    def _runner(self, signature: str) -> Any:
        if not self._is_split or signature not in self._names:
            return self._interpreter().get_signature_runner(signature)
        return self._open(model_content=content_of(self._path, signature)).get_signature_runner(signature)


@contextlib.contextmanager
def _first_call() -> Iterator[None]:
    """Catches what XNNPACK and LiteRT write on stderr in the first call of a file, one file after another."""
    with _FIRST_CALLS, captured_stderr():
        yield


class PlannedRunner:
    """A runner of a signature that plans its memory again before shapes are used a second time.

    In the first call with new shapes LiteRT 2.1 to 2.3 plans as it learns the shapes of tensors, and moves its memory when
    it has to grow. Parts of XNNPACK keep the old addresses: further calls of the same shapes may compute wrong values. A
    second plan finds all memory at hand. In a loop over tensors of dynamic shapes the first call may be wrong, too: it then
    counts only as the one that learns the shapes.

    Args:
        runner: LiteRT's `SignatureRunner`. Private attributes of it are used, since it cannot be told to plan again.
        runs_twice: bool. Whether new shapes are computed twice; for signatures without a state that `has_dynamic_loop`.
    """

    def __init__(self, runner: Any, runs_twice: bool = False) -> None:
        self._runner, self._runs_twice = runner, runs_twice
        details = runner.get_input_details()
        self._integer_inputs = _steps_of(details)
        self._integer_outputs = _steps_of(runner.get_output_details())
        self._is_dynamic = any(-1 in each["shape_signature"] for each in details.values())
        self._last: dict[str, Any] = {}
        self._is_settled = False

    def __call__(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        codes = {name: step.codes(arrays[name]) for name, step in self._integer_inputs.items()}
        results = self._run({**arrays, **codes})
        return results | {name: step.numbers(results[name]) for name, step in self._integer_outputs.items()}

    def _run(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self._is_dynamic:
            # A number may be a size.
            sizes = {name: array.shape or array.item() for name, array in arrays.items()}
            is_new = sizes != self._last
            if is_new:
                self._last, self._is_settled = sizes, False
                if self._runs_twice:
                    self._runner(**arrays)
            if not self._is_settled and (self._runs_twice or not is_new):
                self._is_settled = True
                self._plan_again(arrays)
        return self._runner(**arrays)

    def _plan_again(self, arrays: dict[str, np.ndarray]) -> None:
        """Resizes an input and sizes it back, after which the next call plans from the start."""
        name, array = next((name, array) for name, array in arrays.items() if array.ndim)
        index, graph = self._runner._inputs[name], self._runner._subgraph_index
        for rows in (len(array) + 1, len(array)):
            shape = np.array([rows, *array.shape[1:]], "int32")
            self._runner._interpreter_wrapper.ResizeInputTensor(index, shape, False, graph)


class IntegerStep(NamedTuple):
    """How an input or output of integers represents floats: `number = (code - zero) * scale`.

    Example:

    >>> step = IntegerStep(0.5, -128, np.dtype("int8"))
    >>> step.codes(np.array([0.0, 1.0, 500.0])).tolist(), step.numbers(np.array([-126], "int8")).tolist()
    ([-128, -126, 127], [1.0])
    """

    scale: float
    zero: int
    dtype: np.dtype[np.generic]

    def codes(self, numbers: np.ndarray) -> np.ndarray:
        """Floats as integers; those beyond the range become its ends, and integers stay as they are."""
        if numbers.dtype == self.dtype:
            return numbers
        ends = np.iinfo(str(self.dtype))
        return np.clip(np.round(numbers / self.scale) + self.zero, ends.min, ends.max).astype(self.dtype)

    def numbers(self, codes: np.ndarray) -> np.ndarray:
        """Integers as floats."""
        return (codes.astype("float32") - np.float32(self.zero)) * np.float32(self.scale)


class _Details(TypedDict):
    """What an interpreter says of an input or output."""

    dtype: type[np.generic]
    quantization: tuple[float, int]


def _steps_of(details: Mapping[str, _Details]) -> dict[str, IntegerStep]:
    """The steps of the inputs or outputs that are floats in integers."""
    found = {name: (*each["quantization"], np.dtype(each["dtype"])) for name, each in details.items()}
    return {name: IntegerStep(*each) for name, each in found.items() if each[0] and each[2].kind in "iu"}


def fitting_runtime(
    directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int, weights: WeightCache | None = None
) -> Runtime:
    """A runtime that runs the copy of a signature for exactly these shapes, where the file has one."""
    path = manifest.path(directory, TFLITE, signature)
    runtime = TFLiteRuntime(str(path), signature, num_threads, weights)
    names = manifest.artifact(TFLITE).signatures
    copies = {name: manifest.signature(name).inputs for name in names if name.startswith(f"{signature}_")}
    return lambda arrays: runtime.call(fitting_signature(copies, signature, arrays), arrays)


def fitting_signature(
    signatures: Mapping[str, Sequence[ArraySpec]], default: str, arrays: dict[str, np.ndarray]
) -> str:
    """Returns the name of the signature of exactly the shapes of the arrays, otherwise the default.

    Args:
        signatures: dict of signature name to its tuple of input `ArraySpec`.
        default: name of the dynamic signature.
        arrays: dict of input name to array.

    Returns:
        str.

    Example:

    >>> from keras_transformer.export.data.array_spec import ArraySpec
    >>> exact = (ArraySpec("x", "float32", (1, 4), (None, None)),)
    >>> fitting_signature({"serve_1": exact}, "serve", {"x": np.ones((1, 4))})
    'serve_1'
    """
    shapes = {name: tuple(np.shape(array)) for name, array in arrays.items()}
    for name, inputs in signatures.items():
        is_copy = name.startswith(f"{default}_") and not any(axis for each in inputs for axis in each.axes)
        if is_copy and {each.name: tuple(each.shape) for each in inputs} == shapes:
            return name
    return default
