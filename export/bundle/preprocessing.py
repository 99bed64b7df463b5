"""The preprocessing of a bundle on disk: the vocabularies of its lookups."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.export.errors import InvalidBundleError

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.data.preprocessing.steps import Preprocessing

INSIDE, IN_FRONT = "in the file", "in front of the file"


def write_vocabularies(directory: pathlib.Path, vocabularies: Mapping[str, Sequence[str] | Sequence[int]]) -> None:
    """Adds vocabularies to a bundle that is being written, each as a JSON list.

    Args:
        directory: `pathlib.Path` of the bundle.
        vocabularies: dict of path in the bundle to tokens.
    """
    for path, tokens in vocabularies.items():
        target = directory / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(list(tokens), ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def read_vocabularies(directory: pathlib.Path, paths: Iterable[str]) -> dict[str, list[Any]]:
    """The vocabularies of a bundle.

    Args:
        directory: path of the bundle.
        paths: paths of the vocabularies in it.

    Returns:
        Dict of path to a list of strings or integers.

    Raises:
        InvalidBundleError: one cannot be read, or is not such a list.
    """
    found = {}
    for path in paths:
        try:
            tokens = json.loads((directory / path).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise InvalidBundleError(f"vocabulary '{path}' cannot be read: {error}") from error
        if not isinstance(tokens, list) or not (_all_are(tokens, str) or _all_are(tokens, int)):
            raise InvalidBundleError(f"vocabulary '{path}' is not a list of strings or of integers")
        found[path] = tokens
    return found


def _all_are(tokens: list[object], kind: type) -> bool:
    return all(type(each) is kind for each in tokens)


def ways_of_inputs(spec: ExportSpec, in_front: Mapping[str, Preprocessing]) -> dict[str, str] | None:
    """Where the preprocessing of each input is computed, for the report; None where there is none.

    Args:
        spec: the `ExportSpec`.
        in_front: dict of signature name to the `Preprocessing` in front of the file.
    """
    ways = {}
    for name, each in spec.preprocessed.items():
        inputs = [spec.name for spec in each.signature.inputs]
        outside = {source for step in (in_front[name].steps if name in in_front else ()) for source in step.inputs}
        read = {source for step in each.preprocessing.steps for source in step.inputs}
        ways.update({source: IN_FRONT if source in outside else INSIDE for source in inputs if source in read})
    return ways or None
