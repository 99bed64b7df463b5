"""The files beside the graphs: `config.json`, `generation_config.json`, and `preprocessor_config.json` of recordings."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.audio.hugging_face import KIND
from keras_transformer.backend import keras_private
from keras_transformer.export.engines.key_value_cache import KeyValueCache
from keras_transformer.export.engines.transformers_js.tasks import DECODER, ENGINE, TRANSCRIBER, Task
from keras_transformer.export.errors import InvalidModelError
from keras_transformer.generation.stop import as_end_ids
from keras_transformer.utils.types import JsonObject

if TYPE_CHECKING:
    import keras

    from keras_transformer.audio import LogMel
    from keras_transformer.text import Tokenizer

# The library's own part of `config.json`.
LIBRARY = "transformers.js_config"
_UNBOUNDED = 2048
_LANGUAGE = re.compile(r"<\|[a-z]{2,3}\|>")
_TASKS = ("transcribe", "translate")
_NO_TIMESTAMPS = "<|notimestamps|>"
# The filters of transformers.js end here, and its window is that of Hann.
_MAX_FREQUENCY = 8000.0


def config_json(task: Task, class_names: Sequence[str], library: Mapping[str, object]) -> JsonObject:
    """Returns the content of `config.json` of a model of one graph.

    Args:
        task: `Task`.
        class_names: the labels, or none.
        library: the library's own settings, such as the precision that it loads if it is asked for none.
    """
    labels = {str(index): name for index, name in enumerate(class_names)}
    named = {"id2label": labels, "label2id": {name: int(index) for index, name in labels.items()}} if labels else {}
    own = {"model_type": task.model_type, "architectures": [task.architecture]}
    return {**own, LIBRARY: dict(library), **named}


def language_config(
    model: keras.Model, task: Task, cache: KeyValueCache, tokenizer: Tokenizer, library: Mapping[str, object]
) -> JsonObject:
    """Returns the content of `config.json` of a language model.

    Args:
        model: `LanguageModel`.
        task: `Task`.
        cache: `KeyValueCache` of its decoder.
        tokenizer: its tokenizer.
        library: as in `config_json`.
    """
    layers, width = len(cache.paths), int(model.backbone.output.shape[-1])
    heads = max(getattr(layer, "num_heads", 1) for layer in keras_private.flatten_layers(model))
    common = {**config_json(task, (), library), "vocab_size": model.vocabulary_size, **token_ids(model, tokenizer)}
    common |= {"max_position_embeddings": model.max_length or _UNBOUNDED}
    if task.kind == DECODER:
        sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
        return {**common, **sizes, "num_key_value_heads": cache.num_heads, "head_dim": cache.head_dim}
    sizes = {"d_model": width, "decoder_layers": layers}
    sizes |= {f"{side}_attention_heads": cache.num_heads for side in ("encoder", "decoder")}
    if task.kind == TRANSCRIBER:
        sizes["max_source_positions"] = model.stepwise.encoder_shape[1]
    return {**common, **sizes, "is_encoder_decoder": True}


def generation_config(model: keras.Model, task: Task, tokenizer: Any) -> JsonObject:
    """Returns the content of `generation_config.json`: greedy decoding from the model's start to its end tokens."""
    config = {**token_ids(model, tokenizer), "max_length": model.max_length or _UNBOUNDED, "do_sample": False}
    return {**config, **_of_languages(tokenizer)} if task.kind == TRANSCRIBER else config


def token_ids(model: keras.Model, tokenizer: Tokenizer) -> JsonObject:
    """The special token ids of a language model, under their names in Hugging Face's files."""
    ends, pad = as_end_ids(model.end_id), getattr(tokenizer, "pad_id", None)
    start = "decoder_start_token_id" if model.is_encoder_decoder else "bos_token_id"
    found = {start: model.start_id, "eos_token_id": list(ends) if len(ends) > 1 else next(iter(ends), None)}
    found["pad_token_id"] = pad if pad is not None else next(iter(ends), None)
    return {name: index for name, index in found.items() if index is not None}


def first_tokens(model: keras.Model, config: JsonObject) -> list[int]:
    """The tokens that the decoder of an encoder-decoder begins with in the pipeline, if it is given no options.

    Args:
        model: `LanguageModel`.
        config: its `generation_config`.
    """
    if not config.get("is_multilingual"):
        return [model.start_id]
    chosen = [config["lang_to_id"].get("<|en|>"), config["task_to_id"]["transcribe"]]
    return [each for each in (model.start_id, *chosen, config.get("no_timestamps_token_id")) if each is not None]


def _of_languages(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokens of languages and tasks of a multilingual Whisper, which the pipeline begins with."""
    names = [each for each in tokenizer.special_tokens.get("additional", ()) if isinstance(each, str)]
    tasks = {name: tokenizer.token_to_id(f"<|{name}|>") for name in _TASKS if f"<|{name}|>" in names}
    languages = {name: tokenizer.token_to_id(name) for name in names if _LANGUAGE.fullmatch(name)}
    if "transcribe" not in tasks or not languages:
        return {"is_multilingual": False}
    plain = {"no_timestamps_token_id": tokenizer.token_to_id(_NO_TIMESTAMPS)} if _NO_TIMESTAMPS in names else {}
    return {"is_multilingual": True, "lang_to_id": languages, "task_to_id": tasks, **plain}


def feature_extractor(processor: LogMel, model: keras.Model) -> JsonObject:
    """Returns the content of `preprocessor_config.json` for recordings.

    Args:
        processor: `audio.LogMel`, as `LogMel.whisper` makes it.
        model: `LanguageModel` that takes its frames.

    Raises:
        InvalidModelError: it computes something else than the library can, or other frames than the model takes.
    """
    low, high = processor.frequency_range
    highest = processor.sample_rate / 2 if high is None else high
    found = (processor.normalization, processor.window, processor.mel_scale, processor.padding, low, highest)
    if found != ("whisper", "hann", "slaney", "reflect", 0.0, _MAX_FREQUENCY) or processor.num_samples is None:
        raise InvalidModelError(
            f"{ENGINE} computes the features of audio.LogMel.whisper(); '{processor.name}' is another"
        )
    if processor.fft_length != processor.frame_length or processor.num_samples % processor.sample_rate:
        raise InvalidModelError(f"{ENGINE} takes frames of the length of the transform, of whole seconds")
    shape = (processor.num_frames(processor.num_samples), processor.num_mel_bins)
    if shape != model.source_shape:
        raise InvalidModelError(f"'{model.name}' takes features {model.source_shape}; '{processor.name}' makes {shape}")
    return {
        "feature_extractor_type": KIND,
        "processor_class": "WhisperProcessor",
        "feature_size": processor.num_mel_bins,
        "sampling_rate": processor.sample_rate,
        "hop_length": processor.hop_length,
        "chunk_length": processor.num_samples // processor.sample_rate,
        "n_fft": processor.fft_length,
        "n_samples": processor.num_samples,
        "nb_max_frames": shape[0],
        "padding_side": "right",
        "padding_value": 0.0,
    }


def write_json(path: pathlib.Path, content: object) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
