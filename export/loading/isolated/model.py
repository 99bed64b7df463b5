"""Models in a process of their own, called as those of this process are."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.errors import ExportError
from keras_transformer.export.loading.isolated.isolation import Isolation
from keras_transformer.export.loading.isolated.process import IsolatedProcess
from keras_transformer.export.runtime.runtime_model import RuntimeModel, labeled


class IsolatedModel(RuntimeModel):
    """One signature of a bundle in a process of its own; see `RuntimeModel`. Calls run one after another.

    Its tokenizer, too, is in the process. A call raises `RunError` where the process ends or takes too long; the next
    one starts it again. `close` ends the process, as does the end of the last reference to the model.
    """

    def __init__(
        self, process: IsolatedProcess, directory: pathlib.Path, manifest: Manifest, origin: tuple[str, str]
    ) -> None:
        self._process = process
        specs = manifest.signature(origin[1])
        super().__init__(lambda arrays: process.ask("call", arrays), *specs, origin, directory)
        self.axis_limits, self.metadata = manifest.axis_limits, manifest.metadata
        self.keep_state(manifest.states.get(origin[1], ()))
        self.draw(manifest.draws.get(origin[1], {}))
        self.outputs = labeled(self.outputs)
        if manifest.tokenizer is not None:
            self.tokenizer = lambda texts, **options: process.ask("tokenize", texts, **options)
            self.tokenizer_options = manifest.tokenizer.options

    def close(self) -> None:
        """Ends the process."""
        self._process.close()


class IsolatedLanguageModel:
    """The language model of a bundle in a process of its own. It generates whole texts, one call after another.

    What returns texts in parts (`stream`, `stream_chat`, `conversation`) and engines need the model in this process.

    Args:
        process: `IsolatedProcess`.
        metadata: dict that describes the model.
    """

    def __init__(self, process: IsolatedProcess, metadata: dict[str, Any]) -> None:
        self._process, self.metadata = process, metadata

    def __repr__(self) -> str:
        return "IsolatedLanguageModel: model.generate('Once upon a time', max_new_tokens=20) in a process of its own"

    def generate(self, prompts: Any, **options: Any) -> Any:
        """The `generate` of `RuntimeLanguageModel`.

        Raises:
            RunError: the process ends, or the call takes too long; the next one starts it again.
            GenerationError: invalid prompts or arguments.
        """
        return self._process.ask("generate", prompts, **options)

    def warm_up(self) -> IsolatedLanguageModel:
        """Generates one token, so that the first text does not pay for one-time preparations."""
        self.generate(np.zeros(1, "int32").tolist(), max_new_tokens=1)
        return self

    def close(self) -> None:
        """Ends the process."""
        self._process.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise ExportError(
            f"a language model in a process of its own has generate alone: load it without isolated for {name}"
        )


def open_isolated(
    directory: pathlib.Path, manifest: Manifest, arguments: dict[str, Any], isolated: bool | Isolation
) -> IsolatedModel | IsolatedLanguageModel:
    """Starts the process of a bundle.

    Args:
        directory: path of the bundle.
        manifest: its manifest.
        arguments: the arguments of `load`; the signature is None for a whole language model.
        isolated: True, or an `Isolation`.

    Raises:
        ExportError: see `IsolatedProcess`, or `isolated` is neither.
    """
    limits = Isolation() if isolated is True else isolated
    if not isinstance(limits, Isolation):
        raise ExportError(f"isolated must be a bool or an Isolation. Received: {isolated!r}")
    process = IsolatedProcess(arguments, limits)
    if arguments["signature"] is None:
        return IsolatedLanguageModel(process, manifest.metadata)
    return IsolatedModel(process, directory, manifest, (arguments["backend"], arguments["signature"]))
