"""Sessions of ONNX Runtime bound to a cache that is updated in place. Imports no library."""

from collections.abc import Collection, Mapping
from typing import Any


class BoundCache(dict):
    """Arrays by name that steps update in place, with the `Binding` of the last step and the key that it was made for."""

    key: Any = None
    binding: "Binding | None" = None


class Binding:
    """A session bound to a cache. Binding looks up each array by name, so unchanged arrays are bound once.

    Args:
        session: `onnxruntime.InferenceSession`.
        labels: dict of the name of each output to that in the file.
        cache: dict of name to `OrtValue`.
        in_place: names of the outputs that overwrite the cache.
    """

    def __init__(
        self, session: Any, labels: Mapping[str, str], cache: Mapping[str, Any], in_place: Collection[str]
    ) -> None:
        self._session = session
        self._binding = session.io_binding()
        for name, value in cache.items():
            self._binding.bind_ortvalue_input(name, value)
        self._others = {name: label for name, label in labels.items() if name not in in_place}
        for name, label in labels.items():
            if name in in_place:
                self._binding.bind_ortvalue_output(label, cache[name])
            else:
                self._binding.bind_output(label)
        names = list(labels)  # Results are in the order in which outputs are bound.
        self._positions = {name: names.index(name) for name in self._others}
        self._values: dict[str, Any] | None = None

    def run(self, arrays: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs outside the cache: dict of name to `OrtValue`, overwritten by the next run."""
        for name, array in arrays.items():
            self._binding.bind_cpu_input(name, array)
        self._session.run_with_iobinding(self._binding)
        if self._values is None:
            found = self._binding.get_outputs()
            self._values = {name: found[position] for name, position in self._positions.items()}
            for name, label in self._others.items():
                self._binding.bind_ortvalue_output(label, self._values[name])
        return self._values
