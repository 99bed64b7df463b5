"""Plants all faults in the files of one model: `gate_worker.py MODEL FILE --formats ...`, for `gate_power.py`.

Appends a line of JSON for each fault to FILE; faults that it has lines of are left out. Ends with the status `AGAIN` when
the converters have leaked too much memory, to be started again.
"""

import argparse
import itertools
import json
import pathlib
import resource
import sys
import tempfile

import gate_models
from gate_operations import operation_faults
from gate_power import AGAIN
from gate_signatures import signature_faults
from gate_weights import EditedFiles, assigned, weight_faults

from keras_transformer.export import ExportError
from keras_transformer.export.bundle.manifest import new_manifest
from keras_transformer.export.data.artifact_record import ArtifactRecord
from keras_transformer.export.formats import DEFAULT_FORMATS, FORMATS
from keras_transformer.export.graph.traced import TracedModule
from keras_transformer.export.verification import outputs, running
from keras_transformer.export.verification.weights import traced_constants
from keras_transformer.export.verification.weights.check import check_weights
from keras_transformer.export.verification.weights.traced_constants import TracedConstants

_MOST_MEMORY = 4_500_000


class RememberedConstants(TracedConstants):
    """`TracedConstants` that computes each constant once for all faults, for which the sound model is the same."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._arrays = {}

    def values(self, sizes):
        key = frozenset(sizes)
        if key not in self._arrays:
            self._arrays[key] = list(super().values(sizes))
        return iter(self._arrays[key])


class Judge:
    """The written files of one model, and what the gate says of them.

    Args:
        spec: the `ExportSpec` of the sound model, with its references.
        traced: the `TracedModule` of the sound model.
        folder: `pathlib.Path` to write into.
    """

    def __init__(self, spec, traced, folder):
        self.spec, self.traced, self.folder = spec, traced, folder
        self.manifest = new_manifest(spec, {})
        self.probes = {name: each.all_probes for name, each in spec.signatures.items()}
        self._constants = {}

    def elsewhere(self, folder):
        """A judge of other files by the same model."""
        other = Judge(self.spec, self.traced, pathlib.Path(folder))
        other._constants = self._constants
        return other

    def write(self, format, traced=None, spec=None):
        """Writes the files of one format: of the sound model, or of another one."""
        files = FORMATS[format].write(traced or self.traced, spec or self.spec, self.folder)
        self.manifest = self.manifest.with_artifact(format, ArtifactRecord(files, size=0))

    def refusals(self, format):
        """Which comparisons refuse the files of a format: the weights', and the outputs'."""
        return {"weights": self.weights_refused(format), "outputs": self.outputs_refused(format)}

    def weights_refused(self, format):
        files = dict(self.manifest.artifact(format).signatures)
        traced_constants.TracedConstants = self._remembered
        try:
            return _message(lambda: check_weights(format, self.traced, self.spec, self.folder, files))
        finally:
            traced_constants.TracedConstants = TracedConstants

    def _remembered(self, graph, *arguments):
        if id(graph) not in self._constants:
            self._constants[id(graph)] = RememberedConstants(graph, *arguments)
        return self._constants[id(graph)]

    def outputs_refused(self, format):
        return _message(lambda: outputs.verify_format(self.folder, format, self.probes, None, self.manifest))


def _message(check):
    """What is refused, or None."""
    try:
        check()
    except ExportError as error:
        return str(error).splitlines()[0][:200]
    return None


class Record:
    """The lines that a file has, and those to come."""

    def __init__(self, path):
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._known = {(each["format"], each["group"], each["fault"]) for each in map(json.loads, lines)}

    def lacks(self, format, group, fault):
        return (format, group, fault) not in self._known

    def add(self, format, group, fault, refusals):
        line = {"format": format, "group": group, "fault": fault, **refusals}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > _MOST_MEMORY:
            sys.exit(AGAIN)


def plant_in_weights(judge, model, format, record, most):
    names = [each.path for each in judge.spec.variables]
    by_id = {id(each.value): each.path for each in judge.spec.variables}
    order = [by_id[id(each)] for each in judge.traced.exported_variables]
    files = EditedFiles(judge.folder, format, order)
    for label, weight, values in itertools.islice(weight_faults(model), most):
        if weight.path not in names or weight.path not in order or not record.lacks(format, "weight", label):
            continue
        with files.planted(weight.path, weight.numpy(), values) as is_found:
            if is_found:
                record.add(format, "weight", label, judge.refusals(format))
                continue
        record.add(format, "weight", label, _converted(judge, format, assigned(weight, values)))


def _converted(judge, format, context, traced=None):
    """What the gate says of the files of a changed model."""
    with tempfile.TemporaryDirectory() as folder:
        other = judge.elsewhere(folder)
        with context:
            traced = traced or TracedModule(judge.spec)
            other.write(format, traced)
        return other.refusals(format)


def plant_in_signatures(judge, format, record, faults):
    kept, opened = {}, running.opened
    for label, before, after in faults:
        if not record.lacks(format, "signature", label):
            continue

        def changed(directory, manifest, format, signature, before=before, after=after):
            if signature not in kept:
                kept[signature] = opened(directory, manifest, format, signature)
            return lambda inputs: after(kept[signature](before(inputs)))

        outputs.opened = changed
        try:
            record.add(format, "signature", label, {"weights": None, "outputs": judge.outputs_refused(format)})
        finally:
            outputs.opened = opened


def plant_in_operations(judge, model, formats, record, most):
    for label, context in itertools.islice(operation_faults(model), most):
        missing = [format for format in formats if record.lacks(format, "operation", label)]
        if not missing:
            continue
        with tempfile.TemporaryDirectory() as folder, context:
            other = judge.elsewhere(folder)
            traced = TracedModule(judge.spec)
            for format in missing:
                other.write(format, traced)
            found = {format: other.refusals(format) for format in missing}
        for format, refusals in found.items():
            record.add(format, "operation", label, refusals)


def judge_sound(name, formats, record):
    """The files of a model with fresh and with extreme weights."""
    for change in (gate_models.fresh, gate_models.extreme):
        if not any(record.lacks(format, "sound", change.__name__) for format in formats):
            continue
        spec, traced = gate_models.specification(gate_models.built(name, change))
        with tempfile.TemporaryDirectory() as folder:
            judge = Judge(spec, traced, pathlib.Path(folder))
            for format in DEFAULT_FORMATS:
                judge.write(format)
            for format in formats:
                if record.lacks(format, "sound", change.__name__):
                    record.add(format, "sound", change.__name__, judge.refusals(format))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--formats", nargs="+", default=list(DEFAULT_FORMATS))
    parser.add_argument("--most", type=int, help="faults of each group")
    options = parser.parse_args()
    name, formats, most, record = options.model, options.formats, options.most, Record(options.file)
    model = gate_models.built(name)
    spec, traced = gate_models.specification(model)
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(spec, traced, pathlib.Path(folder))
        for format in DEFAULT_FORMATS:
            judge.write(format)
        for format in formats:
            if record.lacks(format, "sound", "randomized"):
                record.add(format, "sound", "randomized", judge.refusals(format))
            plant_in_weights(judge, model, format, record, most)
            faults = signature_faults(spec, gate_models.UNUSED.get(name, ()))
            plant_in_signatures(judge, format, record, itertools.islice(faults, most))
        plant_in_operations(judge, model, formats, record, most)
    judge_sound(name, formats, record)


if __name__ == "__main__":
    main()
