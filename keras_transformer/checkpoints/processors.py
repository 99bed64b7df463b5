"""The tokenizer, or the processor of images or sounds, that a folder holds beside the weights."""

from keras_transformer import text
from keras_transformer.backend.layer_order import layers_in_order
from keras_transformer.utils.processor_config import holds_processor


def attach_processor(model, folder):
    """Sets `model.tokenizer` where the folder holds the files of one, and `model.processor` of a model that takes images or
    features.

    Args:
        model: `keras.Model`.
        folder: `Folder`.

    Raises:
        InvalidTokenizerError: files of a tokenizer that cannot be read.
        ImageProcessorError, FeatureExtractorError: settings of a processor that are wrong, or of a kind that is not built.
    """
    if any((folder.path / name).is_file() for name in text.HUGGINGFACE_FILES):
        model.tokenizer = text.from_huggingface(folder.path)
    takes = {tensor.name for tensor in model.inputs}
    if "images" in takes and holds_processor(folder.path, "image_processor"):
        from keras_transformer.vision import ImageProcessor

        processor = ImageProcessor.from_huggingface(folder.path)
        model.processor = _among_text(model, processor) if "token_ids" in takes else processor
    elif "features" in takes and holds_processor(folder.path, "feature_extractor"):
        from keras_transformer.audio import LogMel

        model.processor = LogMel.from_huggingface(folder.path)


def _among_text(model, processor):
    """The processor of pictures that stand in the midst of text, where the model has places for them and a tokenizer."""
    from keras_transformer.vision import EachImage, ImagesInText, PlaceImages

    layers = layers_in_order(model)
    place = next((layer for layer in layers if isinstance(layer, PlaceImages)), None)
    if place is None or getattr(model, "tokenizer", None) is None:
        return processor
    num_image_tokens = next(layer for layer in layers if isinstance(layer, EachImage)).output.shape[-2]
    return ImagesInText(processor, model.tokenizer, place.begin_id, num_image_tokens)
