"""The tokenizer, or the processor of images or sounds, that a folder holds beside the weights."""

from keras_transformer import text
from keras_transformer.processor_config import holds_processor


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

        model.processor = ImageProcessor.from_huggingface(folder.path)
    elif "features" in takes and holds_processor(folder.path, "feature_extractor"):
        from keras_transformer.audio import LogMel

        model.processor = LogMel.from_huggingface(folder.path)
