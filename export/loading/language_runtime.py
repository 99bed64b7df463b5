"""Generation from a bundle: the loop and samplers of Keras, in numpy around the runtime."""

import pathlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import numpy as np

from keras_transformer.export.bundle.tokenizers import read_tokenizer
from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.data.tables import Part, Table, html_of, plain
from keras_transformer.export.formats import format_with
from keras_transformer.export.loading.fixed_steps import FixedSteps
from keras_transformer.export.loading.paged_runtime import PagedRuntimeSteps
from keras_transformer.export.runtime.generation_record import has_fixed_shapes
from keras_transformer.export.runtime.generation_steps import RuntimeSteps
from keras_transformer.export.runtime.weight_folder import WeightFolder
from keras_transformer.generation import Generator


class RuntimeLanguageModel(Generator):
    """The language model of a bundle. `load` returns it; `generate` and `stream` are those of `Generator`.

    Several threads may generate at once: each call has its own cache.

    Args:
        steps: `RuntimeSteps`, the model in its runtime.
        tokenizer: the tokenizer of the bundle, or None.

    Attributes:
        metadata: dict that describes the model, as it was given to `export`.
    """

    steps: RuntimeSteps
    metadata: Mapping[str, object] = MappingProxyType({})

    def __repr__(self) -> str:
        return plain(self._parts())

    def _repr_html_(self) -> str:
        return html_of(self._parts())

    def _parts(self) -> list[Part]:
        """What the model is, and a call of it."""
        spec = self.spec
        words = "encoder-decoder" if spec.is_encoder_decoder else "decoder"
        limit = "no limit" if spec.max_length is None else f"at most {spec.max_length:,}"
        rows = [("vocabulary", f"{spec.vocabulary_size:,} tokens"), ("length", f"{limit} tokens")]
        rows.append(
            ("tokenizer", "none: prompts are token ids" if self.tokenizer is None else type(self.tokenizer).__name__)
        )
        chats = getattr(self.tokenizer, "chat_template", None) is not None
        prompt = "[1, 2, 3]" if self.tokenizer is None else "'Once upon a time'"
        calls = [f"model.generate({prompt}, max_new_tokens=20), model.stream({prompt})"]
        calls += ["model.chat('Hello'), model.conversation()"] if chats else []
        head = f"{type(self).__name__}, {words}"
        return [head, Table(("", "is"), rows, texts=("", "is")), *calls]

    def generator(self) -> "RuntimeLanguageModel":
        """The object that reads prompts for an engine: the model itself."""
        return self

    def paged_steps(self, num_blocks: int, block_size: int, **options: Any) -> PagedRuntimeSteps:
        """The model with its cache in the blocks of a pool, for `generation.Engine`: see `PagedRuntimeSteps`."""
        return PagedRuntimeSteps(self.steps, num_blocks, block_size, **options)

    def warm_up(self, batch_size: int = 1, length: int = 1) -> "RuntimeLanguageModel":
        """Reads a prompt and takes one step, so that the first text does not pay for one-time preparations.

        Args:
            batch_size: int >= 1: prompts at once. Default 1.
            length: int >= 1: tokens of each prompt, or of each source. Default 1.

        Returns:
            The model.

        Raises:
            RunError: the runtime fails.
        """
        source = self.steps.make_source(np.zeros((batch_size, length), "int32"))
        prompt = length if source is None else 1
        cache = self.steps.init_cache(batch_size, prompt + 1, source)
        tokens, lengths = np.zeros((batch_size, prompt), "int32"), np.full(batch_size, prompt, "int32")
        _, cache = self.steps.prefill(tokens, lengths, cache)
        self.steps.decode_step(tokens[:, :1], cache, lengths)
        return self


def open_language_model(
    directory: pathlib.Path, manifest: Manifest, backend: str, num_threads: int, weights: WeightFolder | None = None
) -> RuntimeLanguageModel:
    """The language model of a bundle in one runtime.

    Args:
        directory: path of the bundle.
        manifest: its manifest, with a record of generation.
        backend: name of the format.
        num_threads: threads for one call.
        weights: `WeightFolder` for packed weights, or None for memory.

    Raises:
        InvalidBundleError: the bundle lacks a file, or its tokenizer is not the one that it was exported with.
    """
    format = format_with(backend, weights)
    if has_fixed_shapes(manifest):
        steps: RuntimeSteps = FixedSteps(directory, manifest, backend, num_threads, format=format)
    else:
        steps = format.open_steps(directory, manifest, num_threads)
    # A large vocabulary takes as long to read as a file to open.
    with ThreadPoolExecutor(max_workers=1) as pool:
        opening = pool.submit(steps.open_first)
        tokenizer = read_tokenizer(directory, manifest)
        opening.result()
    model = RuntimeLanguageModel(steps, tokenizer)
    model.metadata = manifest.metadata
    return model
