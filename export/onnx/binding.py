"""Sessions of ONNX Runtime bound to a cache, whose arrays stay where they are. Imports nothing."""


class BoundCache(dict):
    """Arrays by name that steps write in place, with the `Binding` of the last step and what that was made for."""

    key = binding = None


class Binding:
    """A session bound to a cache. To bind is to look up each array by name: what does not change is bound once.

    Args:
        session: of ONNX Runtime.
        names: of its outputs, by position: an output of an input's name has another in the file.
        cache: dict of name to `OrtValue`.
        in_place: names of what is written over the cache.
    """

    def __init__(self, session, names, cache, in_place):
        self._session = session
        self._binding = session.io_binding()
        for name, value in cache.items():
            self._binding.bind_ortvalue_input(name, value)
        labels = [output.name for output in session.get_outputs()]
        self._others = {name: label for name, label in zip(names, labels, strict=True) if name not in in_place}
        for name, label in zip(names, labels, strict=True):
            if name in in_place:
                self._binding.bind_ortvalue_output(label, cache[name])
            else:
                self._binding.bind_output(label)
        self._places = {name: names.index(name) for name in self._others}
        self._values = None

    def run(self, arrays):
        """The outputs that are not written over the cache: dict of name to `OrtValue`, written over by the next run."""
        for name, array in arrays.items():
            self._binding.bind_cpu_input(name, array)
        self._session.run_with_iobinding(self._binding)
        if self._values is None:
            found = self._binding.get_outputs()
            self._values = {name: found[place] for name, place in self._places.items()}
            for name, label in self._others.items():
                self._binding.bind_ortvalue_output(label, self._values[name])
        return self._values
