"""Writes a tokenizer as a bundle of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from keras_transformer.export.bundle.tokenizers import check_options
from keras_transformer.export.reporting.progress import Progress
from keras_transformer.export.reporting.report import Report
from keras_transformer.utils.types import Path


def export_tokenizer(
    tokenizer: Any,
    directory: Path,
    formats: str | Iterable[str] = ("tflite", "onnx"),
    *,
    tokenizer_options: Mapping[str, Any] | None = None,
    progress: Progress = True,
) -> Report:
    from keras_transformer.export.bundle_writer import export_spec
    from keras_transformer.export.text.spec import text_spec

    check_options(tokenizer_options)
    options = dict(getattr(tokenizer, "template_options", {}) if tokenizer_options is None else tokenizer_options)
    spec = text_spec(tokenizer, options)
    return export_spec(spec, directory, formats, None, progress, tokenizer=tokenizer, tokenizer_options=options)
