"""Models and metadata as the Open Inference Protocol has them: a model for each signature, and one version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from keras_transformer.export.serving.open_inference.tensors import DATATYPES
from keras_transformer.export.serving.requests import RequestError
from keras_transformer.utils.types import JsonObject
from keras_transformer.version import __version__

if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.export.data.array_spec import ArraySpec
    from keras_transformer.export.serving.calls import Calls
    from keras_transformer.export.serving.requests import Reader
    from keras_transformer.export.serving.served_model import ServedModel

VERSION = "1"
SERVER = {"name": "keras_transformer", "version": __version__, "extensions": ["binary_tensor_data"]}


class Models:
    """The models of an application by the names of this protocol.

    NAME is the first signature of a bundle. Where it has several, NAME_SIGNATURE is each of them, as `write_triton` has it.

    Args:
        calls: `Calls`.
    """

    def __init__(self, calls: Calls) -> None:
        self._found: dict[str, tuple[ServedModel, str]] = {}
        for model in calls.models.values():
            signatures = list(model.reader.signatures) if model.reader is not None else []
            self._found[model.name] = model, next(iter(signatures), "")
            for each in signatures if len(signatures) > 1 else []:
                self._found.setdefault(f"{model.name}_{each}", (model, each))

    @property
    def names(self) -> list[str]:
        """All names."""
        return list(self._found)

    def find(self, name: str, version: str = "") -> tuple[ServedModel, str]:
        """The model and the signature of a name.

        Raises:
            RequestError: 404.
        """
        if name not in self._found:
            raise RequestError(404, f"there is no model '{name:.80}'; there is {', '.join(self._found)}")
        if version not in ("", VERSION):
            raise RequestError(404, f"there is no version '{version:.20}' of '{name}'; there is {VERSION}")
        return self._found[name]

    def find_arrays(self, name: str, version: str = "") -> tuple[ServedModel, Reader, str]:
        """The model, its reader and the signature of a name.

        Raises:
            RequestError: 404; 400 for a language model.
        """
        model, signature = self.find(name, version)
        if model.reader is None:
            raise RequestError(400, f"'{name}' is a language model: use /v1/completions")
        return model, model.reader, signature

    def metadata(self, name: str, version: str = "") -> JsonObject:
        """The metadata of a model: its inputs and outputs; sizes that vary are -1."""
        model, signature = self.find(name, version)
        inputs = model.reader.signatures[signature] if model.reader is not None else ()
        sides = {"inputs": inputs, "outputs": model.outputs.get(signature, ())}
        tensors = {side: [_tensor(spec) for spec in specs] for side, specs in sides.items()}
        return {"name": name, "versions": [VERSION], "platform": model.platform, **tensors}


def _tensor(spec: ArraySpec) -> JsonObject:
    shape = [-1 if size is None else size for size in spec.shape]
    return {"name": spec.name, "datatype": DATATYPES.get(spec.dtype, spec.dtype.upper()), "shape": shape}


def wanted_outputs(outputs: dict[str, Any], names: list[str]) -> dict[str, np.ndarray]:
    """The outputs of a request's names, or all of them where it has none.

    Raises:
        RequestError: 400 for an unknown name.
    """
    for name in names:
        if name not in outputs:
            raise RequestError(400, f"there is no output '{name:.80}'; there is {', '.join(outputs)}")
    return {name: outputs[name] for name in names} if names else outputs
