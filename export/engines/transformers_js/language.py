"""Language models in a folder for transformers.js: their graphs, their files, and how they are checked."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_transformer.export.data.export_spec import ExportSpec
from keras_transformer.export.engines.greedy import Steps, check_greedy, examples
from keras_transformer.export.engines.key_value_cache import float32_decoder, key_value_cache
from keras_transformer.export.engines.past_present import PastPresent, with_dots
from keras_transformer.export.engines.transformers_js import check, files, tokenizer
from keras_transformer.export.engines.transformers_js.decoder import DECODE, decoder_spec, decoder_steps
from keras_transformer.export.engines.transformers_js.encoder_decoder import (
    ENCODE,
    Caches,
    encoder_decoder_spec,
    encoder_decoder_steps,
    given,
)
from keras_transformer.export.engines.transformers_js.tasks import DECODER, ENGINE, TASKS, TRANSCRIBER
from keras_transformer.export.errors import ExportError, InvalidModelError
from keras_transformer.export.spec.language.probes import LanguageProbes
from keras_transformer.export.spec.language.spec import check_stepwise
from keras_transformer.utils.types import JsonObject, Path

if TYPE_CHECKING:
    import keras

    from keras_transformer.text import Tokenizer


_TEXTS = ["this is a text", "a text"]
# The features of a recording differ by rounding from those of Keras.
_OF_FEATURES = 1e-2

Paths = Mapping[str, pathlib.Path]


class LanguageGraphs:
    """The graphs and files of a `LanguageModel` for a pipeline.

    Args:
        model: `LanguageModel`.
        task: key of `TASKS`.
        text_tokenizer: its tokenizer, or None for the one that it has.
        processor: `audio.LogMel` for a task that takes recordings, or None.
        tolerance: see `write_transformers_js`.

    Attributes:
        model: the model in float32.
        names: dict of signature name to the name of its file in the library.

    Raises:
        ExportError: a task on recordings without a processor.
        InvalidModelError: the model, its tokenizer or the processor is not of the kind that the pipeline runs.
    """

    def __init__(
        self, model: keras.Model, task: str, text_tokenizer: Tokenizer | None, processor: Any, tolerance: float | None
    ) -> None:
        self._task, self._kind = task, TASKS[task]
        self._tokenizer: Any = text_tokenizer or getattr(model, "tokenizer", None)
        tokenizer.tokenizer_json(self._tokenizer)  # Raises for unsupported kinds.
        self._processor = processor
        self._extractor: JsonObject | None = None
        if self._kind.kind == DECODER:
            self.names = {DECODE: "model"}
            self._caches: tuple[PastPresent, ...] = (PastPresent(key_value_cache(model, ENGINE)),)
        else:
            self.names = {ENCODE: "encoder_model", DECODE: "decoder_model_merged"}
            self._caches = Caches.of(model)
            self._check_source(model)
        self._decoder = self._caches[0]
        self.model = float32_decoder(model)
        check_stepwise(self.model, tolerance)
        self._generation = files.generation_config(self.model, self._kind, self._tokenizer)

    def _check_source(self, model: keras.Model) -> None:
        is_recording = self._kind.kind == TRANSCRIBER
        if (model.source_shape is None) == is_recording:
            wanted = "recordings, as features" if is_recording else "texts"
            raise InvalidModelError(f"'{self._task}' takes {wanted}; '{model.name}' takes {model.source_names[0]}")
        if is_recording:
            if self._processor is None:
                raise ExportError("a task on recordings needs a processor: an audio.LogMel")
            self._extractor = files.feature_extractor(self._processor, model)

    def spec(self, tolerance: float | None) -> ExportSpec:
        """The `ExportSpec`, under names that TensorFlow allows."""
        if self._kind.kind == DECODER:
            return decoder_spec(self.model, self._decoder, tolerance)
        return encoder_decoder_spec(self.model, Caches(*self._caches), tolerance)

    def rename(self, spec: ExportSpec, paths: dict[str, pathlib.Path]) -> ExportSpec:
        """Gives written files and their spec the names of the library."""
        return with_dots(spec, paths, self._caches)

    def write_files(self, work: pathlib.Path, dtype: str, library: Mapping[str, object]) -> None:
        """Writes the files beside the graphs.

        Args:
            work: folder to write into.
            dtype: name of the precision of the graphs.
            library: further settings of the library.
        """
        model, settings = self.model, {"dtype": dtype, **library}
        contents = {
            "config.json": files.language_config(model, self._kind, self._decoder.cache, self._tokenizer, settings),
            "generation_config.json": self._generation,
            **tokenizer.generation_files(self._tokenizer, model, self._kind, model.max_length),
            **({"preprocessor_config.json": self._extractor} if self._extractor else {}),
        }
        for name, content in contents.items():
            files.write_json(work / name, content)

    def check(self, paths: Paths, tolerance: float | None) -> None:
        """Checks that the float files generate what the model generates.

        Raises:
            ParityError: they do not.
        """
        prompts, count = examples(self.model)
        if self._kind.kind == DECODER:
            expected = self.model.generate(prompts, max_new_tokens=count)
            check_greedy(decoder_steps(paths[DECODE], self._decoder, prompts, count), expected, tolerance)
            return
        prefix = files.first_tokens(self.model, self._generation)
        source = LanguageProbes(self.model).source(2, 5)
        values = [source[name] for name in self.model.source_names]
        if self._kind.kind == TRANSCRIBER:
            asked: Any = {self.model.source_names[0]: values[0], "token_ids": [prefix] * 2}
        else:
            asked = [row[mask].tolist() for row, mask in zip(*values, strict=True)]
        expected = self.model.generate(asked, max_new_tokens=count)
        check_greedy(self._steps(paths, given(self.model, source), prefix, count), expected, tolerance)

    def check_pipeline(self, work: pathlib.Path, paths: Paths, node_modules: Path) -> None:
        """Checks that the pipeline, in Node, generates what ONNX Runtime generates from the same files.

        Raises:
            ParityError: it does not.
            ConversionError: it fails.
        """
        _, count = examples(self.model)
        if self._kind.kind == TRANSCRIBER:
            seconds = np.arange(self._processor.sample_rate) / self._processor.sample_rate
            samples = (0.3 * np.sin(2 * np.pi * 440 * seconds * (1 + seconds))).astype("float32")
            prefix = files.first_tokens(self.model, self._generation)
            (answer,) = check.ask(work, self._task, [samples], node_modules, count)
            features = np.asarray(self._processor(samples[None])).transpose(0, 2, 1)
            steps = self._steps(paths, {"input_features": features}, prefix, count)
            check_greedy(steps, [answer["tokens"][len(prefix) :]], _OF_FEATURES)
            return
        (answers,) = check.ask(work, self._task, [_TEXTS], node_modules, count)
        for text, answer in zip(_TEXTS, answers, strict=True):
            check_greedy(self._of_text(paths, text, count), [answer["tokens"]], None)

    def _of_text(self, paths: Paths, text: str, count: int) -> Steps:
        """The run of the files for a text, as `generate` of the model encodes it."""
        content = tokenizer.generation_tokens(self._tokenizer, self.model, self._kind, text)
        if self._kind.kind == DECODER:
            return decoder_steps(paths[DECODE], self._decoder, [content], count)
        ids = np.array([content], "int64")
        prefix = files.first_tokens(self.model, self._generation)
        return self._steps(paths, {"input_ids": ids, "attention_mask": np.ones_like(ids)}, prefix, count)

    def _steps(self, paths: Paths, source: dict[str, np.ndarray], prefix: list[int], count: int) -> Steps:
        return encoder_decoder_steps(paths, Caches(*self._caches), source, prefix, count)
