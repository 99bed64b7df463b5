"""Comparison of the weights in written files with the Keras variables, bit for bit."""

from __future__ import annotations

import pathlib
from typing import TYPE_CHECKING

from keras_transformer.export.formats import get_format
from keras_transformer.export.graph.traced import array_of, weight_arrays
from keras_transformer.export.verification.weights.comparison import WeightComparison, WeightRecord

if TYPE_CHECKING:
    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.data.lazy_array import AnyArray
    from keras_transformer.export.graph.traced import TracedModule


def check_weights(
    name: str, traced: TracedModule, spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]
) -> WeightRecord:
    """Compares the weights in the files of one format with the variables of the model.

    Every variable that a signature reads must be in the files, with axes merged or transposed or multiplied by constants of
    the model at most, or as part of a constant that follows from it.

    Args:
        name: name of the format.
        traced: the `TracedModule` that the files were written from.
        spec: the `ExportSpec`.
        directory: path of the bundle that is being written.
        files: dict of signature name to path, as `Format.write` returns it.

    Returns:
        Dict for the manifest: how many variables are `"equal"` bit for bit; the names of those of which the files have
        only what is `"computed"` from them, equal up to rounding, or some rows; and the names of variables and constants
        that are `"unaccounted"`: a converter computed them in a way that is not known here.

    Raises:
        WeightError: a weight in a file differs from its variable, or is missing.
    """
    from keras_transformer.export.verification.weights.traced_constants import TracedConstants

    variables, identities = _named(traced, spec)
    graphs = [traced.graphs[each] for each in spec.names(name)]
    constants = [TracedConstants(graph, traced.variables(graph), identities) for graph in graphs]
    read = {each for part in constants for each in part.read}
    order = [identities[id(each)] for each in traced.exported_variables]
    found = get_format(name).stored_weights(directory, files, order)
    if found is None:
        return {"equal": 0, "computed": [], "unaccounted": sorted(read)}
    check = WeightComparison(
        name, {each: array for each, array in variables.items() if each in read}, variables, constants
    )
    for stored in found:
        check.add(stored)
    return check.finish()


def _named(traced: TracedModule, spec: ExportSpec) -> tuple[dict[str, AnyArray], dict[int, str]]:
    """The values of all variables by name, and the name of each `tf.Variable` by id."""
    variables = weight_arrays(spec.variables)
    identities = {id(each): label for label, each in zip(variables, traced.values.values(), strict=True)}
    for number, each in enumerate(traced.exported_variables):  # Those of functions outside the model.
        if id(each) not in identities:
            label = f"{each.name}~{number}"
            variables[label], identities[id(each)] = array_of(each), label
    return variables, identities
