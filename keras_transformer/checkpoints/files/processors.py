"""The tokenizer of a checkpoint folder, or the processor of its images or audio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from keras_transformer import tasks, text
from keras_transformer.backend import keras_private
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.checkpoints.files.folder import Folder
from keras_transformer.tasks.task_model import TaskModel
from keras_transformer.utils.processor_config import has_processor

if TYPE_CHECKING:
    from keras_transformer.vision import DynamicResolutionProcessor, NaFlexProcessor, PatchesInText


def with_processor(model: keras.Model, folder: Folder) -> keras.Model:
    """Sets `model.tokenizer`, and `model.processor` of images, patches, features or samples, from their files.

    Args:
        model: `keras.Model`.
        folder: `Folder`.

    Returns:
        `keras.Model`: `model`, or a `tasks.TextModel` of it, which saves the tokenizer.

    Raises:
        InvalidTokenizerError: the files of the tokenizer cannot be read.
        ImageProcessorError, FeatureExtractorError: the settings of the processor are invalid or not supported.
    """
    if any((folder.path / name).is_file() for name in text.HUGGINGFACE_FILES):
        tokenizer = text.from_huggingface(folder.path)
        if _is_plain(model):
            model = tasks.TextModel.of(model, tokenizer)
        else:
            model.tokenizer = tokenizer
    takes = {tensor.name for tensor in model.inputs}
    if "images" in takes and has_processor(folder.path, "image_processor"):
        from keras_transformer.vision import ImageProcessor

        processor = ImageProcessor.from_huggingface(folder.path)
        model.processor = _among_text(model, processor) if "token_ids" in takes else processor
    elif "patches" in takes and has_processor(folder.path, "image_processor"):
        model.processor = _of_patches(model, folder)
    elif "features" in takes and has_processor(folder.path, "feature_extractor"):
        from keras_transformer.audio import LogMel, NormalizedLogMel

        kind = NormalizedLogMel if "padding_mask" in takes else LogMel
        model.processor = kind.from_huggingface(folder.path)
    elif "samples" in takes and has_processor(folder.path, "feature_extractor"):
        from keras_transformer.audio import SampleNormalization

        model.processor = SampleNormalization.from_huggingface(folder.path)
    return model


def _is_plain(model: keras.Model) -> bool:
    """Returns whether a model is Functional, of no class with more to it, and not compiled: one that can be built again."""
    has_nothing_else = type(model).__module__.startswith("keras.") or type(model) is TaskModel
    return hasattr(model, "operations") and has_nothing_else and not model.compiled


def _of_patches(model: keras.Model, folder: Folder) -> NaFlexProcessor | DynamicResolutionProcessor | PatchesInText:
    """Returns the processor of images that come as patches, alone or inside text."""
    from keras_transformer.vision import (
        DynamicResolutionProcessor,
        FillImages,
        NaFlexProcessor,
        PatchesInText,
        WindowCoordinates,
    )

    coordinates = next(
        (each for each in keras_private.flatten_layers(model) if isinstance(each, WindowCoordinates)), None
    )
    if coordinates is None:
        return NaFlexProcessor.from_huggingface(folder.path)
    processor = DynamicResolutionProcessor.from_huggingface(folder.path, coordinates.window_size)
    fill = next((each for each in layers_in_order(model) if isinstance(each, FillImages)), None)
    if fill is None or getattr(model, "tokenizer", None) is None:
        return processor
    return PatchesInText(processor, model.tokenizer, fill.begin_id)


def _among_text(model: keras.Model, processor: Any) -> Any:
    """Returns the processor of images inside text, if the model has positions for them and a tokenizer."""
    from keras_transformer.vision import EachImage, FillImages, ImagesBeforeText, ImagesInText, PlaceImages

    layers = layers_in_order(model)
    scatter = next((layer for layer in layers if isinstance(layer, PlaceImages)), None)
    if scatter is None or getattr(model, "tokenizer", None) is None:
        return processor
    num_image_tokens = next(layer for layer in layers if isinstance(layer, EachImage)).output.shape[-2]
    if isinstance(scatter, FillImages):
        return ImagesBeforeText(processor, model.tokenizer, scatter.begin_id, num_image_tokens)
    return ImagesInText(processor, model.tokenizer, scatter.begin_id, num_image_tokens)
