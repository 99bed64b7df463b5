"""Writes a tokenizer as a bundle of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from keras_transformer.export.bundle.tokenizers import check_options
from keras_transformer.export.data.report import Report
from keras_transformer.export.reporting.progress import Progress
from keras_transformer.export.runtime.libraries import require_keras
from keras_transformer.utils.types import Path

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer


def export_tokenizer(
    tokenizer: Tokenizer,
    directory: Path,
    formats: str | Iterable[str] = ("tflite", "onnx"),
    *,
    tokenizer_options: Mapping[str, Any] | None = None,
    progress: Progress = True,
) -> Report:
    """Writes a tokenizer as TFLite and ONNX files of built-in operators, and verifies them: bytes of text in, ids out.

    The files have two signatures. "tokenize" takes "bytes", uint8 `(batch, bytes)`, the UTF-8 of each text from the start of
    its row, and "lengths", int32 `(batch,)`; it returns "token_ids" and "padding_mask" `(batch, length)`, as the inputs of a
    model have them. "detokenize" takes these, and returns "bytes" and "lengths". An app needs no tokenizer library.

    Before a file appears, it is run on hard texts of many scripts and on texts of all tokens: every id and every byte must
    be that of the tokenizer.

    Args:
        tokenizer: a `WordPiece`, `BytePair`, `SentencePiece` or `Bytes`, or a `HuggingFaceTokenizer` of BERT's WordPiece, of
            byte-level BPE (GPT-2, RoBERTa, Whisper, Llama 3, Qwen and others), of BPE with byte fallback (Llama 2, Mistral,
            Gemma), or of Unigram (T5, XLM-R, CamemBERT, ALBERT, XLNet, DeBERTa).
        directory: path of the bundle to write. An existing bundle is replaced; anything else is kept, and an error.
        formats: names of the formats.
        tokenizer_options: dict of how texts are encoded: "start", "end", "max_length". By default the `template_options` of
            the tokenizer, if it has them.
        progress: see `export`.

    Returns:
        A `Report`.

    Raises:
        InvalidModelError: the tokenizer has a part that cannot be in a file; the message names it. "detokenize" alone is
            left out where the tokenizer does not decode token by token.
        ParityError: a file returns another id or byte.
        InvalidBundleError: the directory contains something that is not a bundle.

    Bytes that are no UTF-8 give unspecified ids. Names of special tokens in a text are ordinary text, as in `encode`.

    Example:

    >>> from keras_transformer.export import load
    >>> from keras_transformer.text import BytePair
    >>> tokenizer = BytePair.train(["the cat sat on the mat"], 270)
    >>> report = export_tokenizer(tokenizer, "/tmp/keras_transformer_doctest", ["tflite"], progress=False)
    >>> tokenize = load("/tmp/keras_transformer_doctest", "tflite", "tokenize")
    >>> tokenize("the mat")["token_ids"][0].tolist() == tokenizer.encode("the mat")
    True
    """
    from keras_transformer.export.writing.bundle_writer import export_spec

    require_keras("export_tokenizer")
    from keras_transformer.export.text.files.spec import text_spec

    check_options(tokenizer_options)
    options = dict(getattr(tokenizer, "template_options", {}) if tokenizer_options is None else tokenizer_options)
    spec = dataclasses.replace(text_spec(tokenizer, options), tokenizer=tokenizer, tokenizer_options=options)
    return export_spec(spec, directory, formats, progress=progress)
