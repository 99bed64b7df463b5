"""What becomes of a graph in each format: exported, run on inputs of all regions, and compared with Keras."""

import dataclasses
import tempfile

import keras

from keras_transformer.export import ExportError, ExportOptions, export, load
from keras_transformer.export.errors import ParityError, WeightError

from .graph import Program
from .reference import CAUGHT, CRASH, EQUAL, REFUSED, UNSOUND, Outcome, Reference, Said, one_line
from .regions import FLOATS, ORDINARY, trials


def outcomes(graph, seed, formats, given=None, regions=tuple(FLOATS)):
    """The `Outcome` of each format.

    Args:
        graph: `Graph`.
        seed: int, of weights and inputs.
        formats: list of names.
        given: list of a region and arrays, in place of those of all regions.
        regions: keys of `FLOATS`.
    """
    keras.backend.clear_session()
    program = Program(graph, seed)
    reference = Reference(program, list(given or trials(graph, seed, regions)))
    together = _exported(program, formats, reference) if len(formats) > 1 else None
    return together or {each: _alone(program, each, reference) for each in formats}


def _exported(program, formats, reference):
    """The outcomes of one export of several formats, or None where it raises."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            export(program.model, f"{folder}/bundle", formats, progress=False)
        except Exception:  # Each format alone tells its own error.
            return None
        return {format: _accepted(f"{folder}/bundle", format, reference) for format in formats}


def _accepted(folder, format, reference):
    """The outcome of a file that was written."""
    return reference.difference(load(folder, format), Said.of(folder, format)) or Outcome(EQUAL)


def _alone(program, format, reference):
    with tempfile.TemporaryDirectory() as folder:
        try:
            export(program.model, f"{folder}/bundle", [format], progress=False)
        except (ParityError, WeightError) as error:
            return _judged(program, format, reference, one_line(error))
        except ExportError as error:
            return Outcome(REFUSED, one_line(error))
        except Exception as error:  # No error that the package raises on purpose.
            return Outcome(CRASH, one_line(error))
        return _accepted(f"{folder}/bundle", format, reference)


def _judged(program, format, reference, detail):
    """Whether a file that is refused for its values is sound: with any tolerance, it is compared here."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            export(program.model, f"{folder}/b", [format], progress=False, options=ExportOptions(tolerance=1e30))
        except ExportError as error:
            return Outcome(CAUGHT, f"{detail} / {one_line(error)}")
        different = reference.difference(load(f"{folder}/b", format), regions=ORDINARY)
    if different is None:
        return Outcome(UNSOUND, detail)
    return dataclasses.replace(different, kind=CAUGHT, detail=f"{detail} / {different.detail}")
