"""Encoders and their heads in a folder for transformers.js: their graph, their files, and how they are checked."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_transformer.export.bundle.metadata import CLASS_NAMES
from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.engines.transformers_js import check, files, tokenizer
from keras_transformer.export.engines.transformers_js.graph import OF_TEXT, check_inputs, transformers_js_spec
from keras_transformer.export.engines.transformers_js.tasks import TASKS, Task
from keras_transformer.export.errors import ExportError
from keras_transformer.export.onnx.runtime import onnx_session
from keras_transformer.export.spec import names, vocabulary
from keras_transformer.export.spec.class_names import known_metadata
from keras_transformer.export.spec.float32 import float32_twin
from keras_transformer.export.spec.functional import SERVE
from keras_transformer.export.spec.twins import merged_twin
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

_TEXT = "this is a text"


class OneGraph:
    """The graph and the files of an encoder, or of a head on one, for a pipeline.

    Args:
        model: Functional model.
        task: key of `TASKS`.
        text_tokenizer: the tokenizer, or None for the one that the model has.
        processor: `vision.ImageProcessor` for a task on images, or None.
        metadata: dict with the names of the classes.

    Attributes:
        model: the model in float32.
        names: dict of signature name to the name of its file in the library.

    Raises:
        ExportError: an argument does not fit the task.
        InvalidModelError: the model has other inputs or outputs, or its tokenizer is of another kind.
    """

    names = {SERVE: "model"}

    def __init__(
        self,
        model: keras.Model,
        task: str,
        text_tokenizer: Tokenizer | None,
        processor: Any,
        metadata: Mapping[str, object],
    ) -> None:
        self._task, self._kind = task, TASKS[task]
        self._tokenizer: Any = text_tokenizer or getattr(model, "tokenizer", None)
        self._processor = processor
        check_inputs(model, self._kind)
        self._class_names = _class_names(model, self._kind, metadata)
        if not self._kind.is_image:
            tokenizer.tokenizer_json(self._tokenizer)  # Raises for unsupported kinds.
        elif processor is None:
            raise ExportError("an image task needs a processor: a vision.ImageProcessor")
        self._most = vocabulary.longest_sequence(model)
        self.model = float32_twin(merged_twin(model))

    def spec(self, tolerance: float | None) -> ExportSpec:
        """The `ExportSpec`."""
        return transformers_js_spec(self.model, self._kind, tolerance)

    def rename(self, spec: ExportSpec, paths: dict[str, pathlib.Path]) -> ExportSpec:
        """The spec as it is: the graph has the names of the library."""
        return spec

    def write_files(self, work: pathlib.Path, dtype: str, library: Mapping[str, object]) -> None:
        """Writes the files beside the graph; see `LanguageGraphs.write_files`."""
        config = files.config_json(self._kind, self._class_names, {"dtype": dtype, **library})
        files.write_json(work / "config.json", config)
        if self._kind.is_image:
            self._processor.to_huggingface(work)
        else:
            files.write_json(work / "tokenizer.json", tokenizer.tokenizer_json(self._tokenizer))
            content = tokenizer.tokenizer_config(self._tokenizer, self._most)
            files.write_json(work / "tokenizer_config.json", content)

    def check(self, paths: Mapping[str, pathlib.Path], tolerance: float | None) -> None:
        """Nothing beyond the probes."""

    def check_pipeline(self, work: pathlib.Path, paths: Mapping[str, pathlib.Path], node_modules: Path) -> None:
        """Compares the answer of the pipeline, in Node, with that of the graph, prepared by the tools of the model.

        Raises:
            ParityError: it differs.
            ConversionError: it fails.
        """
        example, given = self._image() if self._kind.is_image else self._text()
        results: list[np.ndarray] = onnx_session(str(paths[SERVE]), 1).run(None, given)
        expected = np.asarray(results[0])
        (answer,) = check.ask(work, self._task, [example], node_modules)
        if self._task == "feature-extraction":
            check.compare(answer, expected, "a text in transformers.js")
            return
        scores = np.asarray(keras.ops.softmax(expected))
        if self._task == "fill-mask":
            scores = scores[:, given["input_ids"][0].tolist().index(self._tokenizer.mask_id)]
            found = {each["token"]: each["score"] for each in answer}
            answer = np.array([found[index] for index in sorted(found)], "float32")
        else:
            answer = check.scores_of(answer, self._class_names)
        check.compare(answer, scores[0], "an example in transformers.js")

    def _image(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        shape = keras.tree.flatten(self.model.input)[0].shape[1:]
        example = np.random.default_rng(0).integers(0, 256, shape).astype("uint8")
        images = np.asarray(self._processor(example), "float32")
        return example, {"pixel_values": np.ascontiguousarray(images.transpose(0, 3, 1, 2))}

    def _text(self) -> tuple[str, dict[str, np.ndarray]]:
        mask = f" {self._tokenizer.special_tokens['mask']}" if self._task == "fill-mask" else ""
        ids = self._tokenizer.encode(_TEXT + mask, start=True, end=True, allow_special_tokens=True)
        arrays = {"token_ids": np.array([ids]), "padding_mask": np.ones((1, len(ids)), "int64")}
        arrays["segment_ids"] = np.zeros_like(arrays["padding_mask"])
        return _TEXT + mask, {OF_TEXT[name]: arrays[name] for name in names.input_names(self.model)}


def _class_names(model: keras.Model, task: Task, metadata: Mapping[str, Any]) -> list[str]:
    if task.rank != 2:
        return []
    count = keras.tree.flatten(model.output)[0].shape[-1]
    found = list(
        (known_metadata(model) | dict(metadata)).get(CLASS_NAMES) or [f"LABEL_{index}" for index in range(count)]
    )
    if len(found) != count or len(set(found)) < count:
        raise ExportError(f"metadata['class_names'] must be {count} different names. Received: {found}")
    return found
