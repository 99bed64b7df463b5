"""What the files of each format are written from, where a model has preprocessing that not every format can contain."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.data.preprocessing.steps import Preprocessing
from keras_transformer.export.format import Format
from keras_transformer.export.formats import FORMATS

if TYPE_CHECKING:
    from keras_transformer.export.graph.traced import TracedModule


class Source(NamedTuple):
    """What the files of a format are written from.

    Args:
        format: the `Format`.
        traced: the `TracedModule`.
        spec: the `ExportSpec` that it was traced from. Its preprocessing is what the format may put into the files.
    """

    format: Format
    traced: TracedModule
    spec: ExportSpec


class Sources:
    """The sources of the formats of a bundle.

    Args:
        spec: `ExportSpec`.
        traced: the `TracedModule` of the spec.
        names: names of the formats of the bundle.
    """

    def __init__(self, spec: ExportSpec, traced: TracedModule, names: Sequence[str]) -> None:
        self._spec, self._traced, self._names = spec, traced, names

    def of(self, format: Format) -> Source:
        """The source of a format."""
        if self._spec.preprocessed and format.takes_text:
            return Source(format, self._whole, self._spec.whole())
        if any(FORMATS[name].made_from == format.name for name in self._names):
            return Source(format, self._traced, format.for_others(self._spec))
        return Source(format, self._traced, self._spec)

    @functools.cached_property
    def _whole(self) -> TracedModule:
        from keras_transformer.export.graph.traced import TracedModule
        from keras_transformer.export.operations.layers import EVERYWHERE

        return TracedModule(self._spec.whole(), EVERYWHERE)

    def preprocessing(self, source: Source) -> dict[str, Preprocessing]:
        """The preprocessing in front of the files of a source, by signature."""
        if source.format.takes_text:
            return {}
        found = {}
        for name, each in self._spec.preprocessed.items():
            inside = source.format.steps_inside(each.preprocessing) if source.spec.preprocessed else ()
            left = each.preprocessing.without(inside, {spec.name: spec for spec in each.signature.inputs})
            if left.steps:
                found[name] = left
        return found

    def vocabularies(self, preprocessing: Mapping[str, Preprocessing]) -> dict[str, list[str] | list[int]]:
        """The vocabularies of preprocessing in front of files: dict of path in the bundle to tokens."""
        found: dict[str, list[str] | list[int]] = {}
        for name, each in preprocessing.items():
            found.update((path, self._spec.preprocessed[name].vocabularies[path]) for path in each.paths)
        return found
