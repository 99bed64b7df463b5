"""Tokenizers with a common interface: text to token ids and back.

TensorFlow and Keras are imported only by `Tokenizer.graph` and `Tokenizer.map_dataset`.
"""

from keras_transformer.text.errors import (
    EmptyTextError,
    EncodingError,
    GraphError,
    InvalidTokenizerError,
    MissingTextError,
    SpecialTokenError,
    SpellingError,
    TextError,
    TokenizerLibraryError,
)
from keras_transformer.text.hugging_face.folder import HUGGINGFACE_FILES, from_huggingface
from keras_transformer.text.hugging_face.tokenizer import HuggingFaceTokenizer
from keras_transformer.text.keras_hub import from_keras_hub
from keras_transformer.text.loading import TOKENIZERS, load_tokenizer
from keras_transformer.text.tokenizers.byte_pair import BytePair
from keras_transformer.text.tokenizers.bytes import Bytes
from keras_transformer.text.tokenizers.characters import Characters
from keras_transformer.text.tokenizers.interspersed_characters import InterspersedCharacters
from keras_transformer.text.tokenizers.sentencepiece import SentencePiece
from keras_transformer.text.tokenizers.stream import TextStream
from keras_transformer.text.tokenizers.tokenizer import Tokenizer
from keras_transformer.text.tokenizers.wordpiece import WordPiece

__all__ = [
    "HUGGINGFACE_FILES",
    "TOKENIZERS",
    "BytePair",
    "Bytes",
    "Characters",
    "EmptyTextError",
    "EncodingError",
    "GraphError",
    "HuggingFaceTokenizer",
    "InterspersedCharacters",
    "InvalidTokenizerError",
    "MissingTextError",
    "SentencePiece",
    "SpecialTokenError",
    "SpellingError",
    "TextError",
    "TokenizerLibraryError",
    "TextStream",
    "Tokenizer",
    "WordPiece",
    "from_huggingface",
    "from_keras_hub",
    "load_tokenizer",
]
