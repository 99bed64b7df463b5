"""The tokenizer, or the processor of images or sounds, that a folder holds beside the weights."""

from keras_transformer import text


def attach_processor(model, folder):
    """Sets `model.tokenizer` where the folder holds the files of one.

    Args:
        model: `keras.Model`.
        folder: `Folder`.

    Raises:
        InvalidTokenizerError: files of a tokenizer that cannot be read.
    """
    reader = getattr(text, "from_huggingface", None)
    if reader is not None and any((folder.path / name).is_file() for name in text.HUGGINGFACE_FILES):
        model.tokenizer = reader(folder.path)
