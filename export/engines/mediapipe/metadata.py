"""MediaPipe's metadata of a TFLite file: a flatbuffer in its metadata, and associated files in a zip archive behind it."""

from __future__ import annotations

import importlib
import io
import pathlib
import zipfile
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from keras_transformer.export.engines.mediapipe.detector import outputs_in_order
from keras_transformer.export.engines.mediapipe.tasks import CATEGORY, IDS, IMAGE, LOCATION, MASK, SEGMENTS, Task
from keras_transformer.export.errors import MissingLibraryError
from keras_transformer.export.tflite.passes.interface import add_metadata
from keras_transformer.export.tflite.tree import read_file, write_file

if TYPE_CHECKING:
    from types import ModuleType

_ENTRY, _IDENTIFIER = "TFLITE_METADATA", b"M001"
_PARSER_VERSION = "1.0.0"
LABELS, VOCABULARY = "labels.txt", "vocab.txt"
_DATE = (1980, 1, 1, 0, 0, 0)  # The first of the format: the same model gives the same bytes.
_DESCRIPTIONS = {
    IDS: "Tokenized ids of the text.",
    MASK: "1 for tokens, 0 for padding.",
    SEGMENTS: "Segment of each token.",
    IMAGE: "Image of levels from 0 to 255.",
}


def mediapipe_schema() -> ModuleType:
    """The module with the classes of the metadata.

    Raises:
        MissingLibraryError: MediaPipe is not installed.
    """
    try:
        return importlib.import_module("mediapipe.tasks.metadata.metadata_schema_py_generated")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "mediapipe":
            raise
        raise MissingLibraryError("writing a file for MediaPipe", "mediapipe") from error


def write_metadata(
    path: pathlib.Path, task: Task, name: str, description: str, class_names: Sequence[str], vocabulary: Sequence[str]
) -> None:
    """Adds the metadata of a task to a TFLite file of one signature.

    Args:
        path: path of the file, which is replaced.
        task: `Task`.
        name: name of the model.
        description: description of the model.
        class_names: names of the classes; none for the numbers of classes.
        vocabulary: tokens in the order of their ids, of a text task.
    """
    schema = mediapipe_schema()
    files = {LABELS: class_names} if class_names else {}
    files |= {VOCABULARY: vocabulary} if vocabulary else {}
    graph = schema.SubGraphMetadataT()
    graph.inputTensorMetadata = (
        [_image(schema)] if task.is_image else [_tensor(schema, each) for each in (IDS, MASK, SEGMENTS)]
    )
    if task.is_detector:
        graph.outputTensorMetadata = [_detections(schema, each, bool(class_names)) for each in outputs_in_order(path)]
    else:
        graph.outputTensorMetadata = [_output(schema, task, bool(class_names))]
    if not task.is_image:
        graph.inputProcessUnits = [_tokenizer(schema)]
    described = schema.ModelMetadataT()
    described.name, described.description, described.minParserVersion = name, description, _PARSER_VERSION
    described.subgraphMetadata = [graph]
    model = read_file(path)
    add_metadata(model, _ENTRY, _packed(described))
    write_file(model, path)
    with open(path, "ab") as file:
        file.write(_archive(files, path.stat().st_size))


def _packed(described: Any) -> bytes:
    import flatbuffers

    builder = flatbuffers.Builder(0)
    builder.Finish(described.Pack(builder), _IDENTIFIER)
    return bytes(builder.Output())


def _archive(files: dict[str, Sequence[str]], offset: int) -> bytes:
    """A zip archive of text files, one line for each entry, that begins at an offset of the file around it."""
    if not files:
        return b""
    content = io.BytesIO()
    content.write(b"\0" * offset)  # Positions in an archive count from the start of the file around it.
    with zipfile.ZipFile(content, "a", zipfile.ZIP_STORED) as archive:
        for name, lines in files.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), "".join(f"{line}\n" for line in lines).rstrip("\n"))
    return content.getvalue()[offset:]


def _tensor(schema: ModuleType, name: str) -> Any:
    tensor = schema.TensorMetadataT()
    tensor.name, tensor.description = name, _DESCRIPTIONS.get(name)
    return tensor


def _image(schema: ModuleType) -> Any:
    """An image of levels: the graph normalizes it, for each channel."""
    tensor = _tensor(schema, IMAGE)
    tensor.content = schema.ContentT()
    tensor.content.contentPropertiesType = schema.ContentProperties.ImageProperties
    tensor.content.contentProperties = schema.ImagePropertiesT()
    tensor.content.contentProperties.colorSpace = schema.ColorSpaceType.RGB
    unit = schema.ProcessUnitT()
    unit.optionsType = schema.ProcessUnitOptions.NormalizationOptions
    unit.options = schema.NormalizationOptionsT()
    unit.options.mean, unit.options.std = [0.0], [1.0]
    tensor.processUnits = [unit]
    tensor.stats = schema.StatsT()
    tensor.stats.min, tensor.stats.max = [0.0], [255.0]
    return tensor


def _output(schema: ModuleType, task: Task, has_labels: bool) -> Any:
    tensor = _tensor(schema, task.output)
    if has_labels:
        tensor.associatedFiles = [_file(schema, LABELS, schema.AssociatedFileType.TENSOR_AXIS_LABELS)]
    return tensor


def _detections(schema: ModuleType, name: str, has_labels: bool) -> Any:
    """One of the four outputs of a detector."""
    tensor = _tensor(schema, name)
    if name == LOCATION:
        tensor.content = schema.ContentT()
        tensor.content.contentPropertiesType = schema.ContentProperties.BoundingBoxProperties
        tensor.content.contentProperties = schema.BoundingBoxPropertiesT()
        tensor.content.contentProperties.index = [1, 0, 3, 2]  # Where left, top, right and bottom are.
        tensor.content.contentProperties.type = schema.BoundingBoxType.BOUNDARIES
        tensor.content.contentProperties.coordinateType = schema.CoordinateType.RATIO
    if name == CATEGORY and has_labels:
        tensor.associatedFiles = [_file(schema, LABELS, schema.AssociatedFileType.TENSOR_VALUE_LABELS)]
    return tensor


def _tokenizer(schema: ModuleType) -> Any:
    unit = schema.ProcessUnitT()
    unit.optionsType = schema.ProcessUnitOptions.BertTokenizerOptions
    unit.options = schema.BertTokenizerOptionsT()
    unit.options.vocabFile = [_file(schema, VOCABULARY, schema.AssociatedFileType.VOCABULARY)]
    return unit


def _file(schema: ModuleType, name: str, kind: int) -> Any:
    file = schema.AssociatedFileT()
    file.name, file.type = name, kind
    return file
