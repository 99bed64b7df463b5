"""The contract of a file format. Each format is one object in a folder of its own; `formats.FORMATS` lists them."""

from __future__ import annotations

import collections
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from keras_transformer.export.errors import ExportError

if TYPE_CHECKING:
    import keras
    import numpy as np

    from keras_transformer.export.data.export_spec import ExportSpec
    from keras_transformer.export.data.integer_share import Product
    from keras_transformer.export.data.manifest import Manifest
    from keras_transformer.export.data.preprocessing.steps import Preprocessing
    from keras_transformer.export.data.weights import StoredWeight, WeightBytes, WeightPair
    from keras_transformer.export.graph.traced import TracedModule
    from keras_transformer.export.runtime.generation_steps import RuntimeSteps
    from keras_transformer.export.runtime.libraries import Library
    from keras_transformer.export.runtime.runtime import Runtime
    from keras_transformer.export.runtime.weight_folder import WeightFolder


class Format(Protocol):
    """A file format: how its files are written, quantized, run and described.

    Importing a format, opening a file and running it needs only numpy and `library`. What writes, quantizes or inspects
    files imports its libraries when it is called.

    Attributes:
        name: key in `FORMATS`, and in the artifacts of a manifest.
        title: the name as people write it, or "".
        runtime_title: the name of the runtime that runs the files, or "".
        library: the `Library` that runs the files.
        writers: names of further distributions whose versions the manifest records.
        takes_text: bool. Whether files take strings, so that the tokenizer and all preprocessing can be part of the graph.
        takes_fixed_shapes: bool. Whether files contain further signatures of fixed shapes, which run faster.
        takes_single_tokens: bool. Whether a language model has a further signature for one token a row.
        reports_operations: bool. Whether `report.html` counts the operations.
        takes_large_weights: bool. Whether float files of more than 2 GB are written, and quantized, one weight at a time.
        packs_weights: bool. Whether the runtime writes files of packed weights: see `with_weight_folder`.
        shares_loaded: bool. Whether the signatures share a file that is loaded while one of them is open.
        made_from: name of the format whose files it is converted from, by `convert` in place of `write` and `quantize`; None
            for a format that is made from the model. It is written where it is asked for only, and the other one beside it.
    """

    name: str
    title: str = ""
    runtime_title: str = ""
    library: Library
    writers: tuple[str, ...] = ()
    takes_text: bool = False
    takes_fixed_shapes: bool = False
    takes_single_tokens: bool = False
    reports_operations: bool = True
    takes_large_weights: bool = False
    packs_weights: bool = False
    shares_loaded: bool = False
    made_from: str | None = None

    def for_others(self, spec: ExportSpec) -> ExportSpec:
        """The spec of files that another format is made from: none of these takes strings."""
        return dataclasses.replace(spec, preprocessed={})

    def write(self, traced: TracedModule, spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
        """Writes the files of a spec.

        Args:
            traced: the `TracedModule`.
            spec: the `ExportSpec` that it was traced from.
            directory: folder to write into.

        Returns:
            Dict of signature name to the path, of its file, relative to `directory`.

        Raises:
            UnsupportedOpError: the format has no counterpart of an operation.
            ConversionError: the converter fails for another reason.
        """
        raise TypeError(f"{self.name} is made from {self.made_from}: convert makes its files")

    def convert(self, sources: dict[str, str], spec: ExportSpec, directory: pathlib.Path) -> dict[str, str]:
        """`write` of a format that is made from another's files, which are written and verified; and its `quantize`.

        Args:
            sources: dict of signature name to path of the other format's files, float or quantized, relative to `directory`.
            spec: the `ExportSpec`.
            directory: folder to write into.

        Returns:
            As for `write`. Files of before are replaced.

        Raises:
            ConversionError: the converter fails.
        """
        raise TypeError(f"{self.name} is made from the model: write makes its files")

    def steps_inside(self, preprocessing: Preprocessing) -> Sequence[str]:
        """Names of the results of steps that `write` puts into the files, if the spec has them.

        Args:
            preprocessing: `Preprocessing` of a signature.
        """
        return ()

    def output_names(self, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
        """The names of the outputs of a signature in the files of this format; inputs always keep theirs.

        Args:
            inputs: names of the inputs of the signature.
            outputs: names of its outputs.

        Returns:
            Dict of name to the name in the file.
        """
        return {name: name for name in outputs}

    def quantize(self, spec: ExportSpec, directory: pathlib.Path, files: dict[str, str]) -> None:
        """Replaces float files by quantized ones, by the mode of `spec.quantization`.

        Args:
            spec: the `ExportSpec`.
            directory: folder of the bundle that is being written.
            files: dict of signature name to path, as `write` returns it.

        Raises:
            QuantizationError: the format does not support what is requested.
        """
        raise TypeError(f"{self.name} is made from {self.made_from}: convert makes its quantized files")

    def stored_weights(
        self, directory: pathlib.Path, files: dict[str, str], names: Sequence[str]
    ) -> Iterator[StoredWeight] | None:
        """The constants of written files, one at a time, read independently of the writer.

        Args:
            directory: folder of the bundle.
            files: dict of signature name to path, as `write` returns it.
            names: names of the variables, in the order of `TracedModule.exported_variables`.

        Returns:
            Iterator over `StoredWeight`, or None if the weights of this format cannot be read: they are not compared then.
        """
        return None

    def weight_pairs(
        self,
        source: pathlib.Path,
        directory: pathlib.Path,
        files: dict[str, str],
        variables: Sequence[keras.Variable] = (),
    ) -> Iterator[WeightPair] | None:
        """The weights of float files beside what quantized files have in their place, dequantized.

        Args:
            source: folder with the float files.
            directory: folder with the quantized files, of the same names.
            files: dict of signature name to path, as `write` returns it.
            variables: the Keras variables, for formats whose float files are not read; none where the model is not known.

        Returns:
            Iterator over `WeightPair`, or None if quantized files of this format cannot be read: they are not compared then.
        """
        return None

    def products(
        self,
        path: pathlib.Path,
        locate: Callable[[str, str], str],
        arrays: Mapping[str, np.ndarray],
    ) -> Iterator[Product] | None:
        """The products and convolutions of a file, and its other operators on floats.

        Args:
            path: the file of a signature.
            locate: maps the type and the name of an operation to the name of its layer.
            arrays: inputs of the signature, for which sizes are counted where files do not state them.

        Returns:
            Iterator over `Product`, or None where the operators of the format are not read.
        """
        return None

    def with_weight_folder(self, folder: WeightFolder) -> Format:
        """The format with a folder for what its runtime makes of weights before it computes; without one they are in memory.

        Raises:
            ExportError: its runtime writes no such files.
        """
        raise ExportError(f"weight_cache is for runtimes that pack weights into files, unlike that of {self.name}")

    def open(self, directory: pathlib.Path, manifest: Manifest, signature: str, num_threads: int) -> Runtime:
        """Checks the file of one signature, then loads it.

        Args:
            directory: folder of the bundle.
            manifest: its manifest.
            signature: name of the signature.
            num_threads: threads for one call.

        Returns:
            A `Runtime`.

        Raises:
            InvalidBundleError: the bundle has no such artifact or signature.
            MissingLibraryError: the runtime is not installed.
            Exception: the runtime cannot read the file.
        """
        ...

    def open_steps(self, directory: pathlib.Path, manifest: Manifest, num_threads: int) -> RuntimeSteps:
        """`open` for the signatures that generate: the prefill and decode steps of a language model."""
        ...

    def count_operations(self, path: pathlib.Path) -> collections.Counter[str]:
        """How often each operation occurs in a file.

        Raises:
            ImportError: the library that reads the file is not installed.
        """
        ...

    def inspect(self, path: pathlib.Path) -> list[str]:
        """Lines of text on one file, beyond the number of its operations; none where a library is missing."""
        return []

    def weight_bytes(self, directory: pathlib.Path, files: dict[str, str]) -> Iterator[WeightBytes] | None:
        """The constants of written files and their bytes, in the order of their use, each once.

        Args:
            directory: folder of the bundle.
            files: dict of signature name to path, as `write` returns it.

        Returns:
            Iterator over `WeightBytes`, or None if this format does not tell them.

        Raises:
            ImportError: the library that reads the files is not installed.
        """
        return None

    def check_listed(self, directory: pathlib.Path, manifest: Manifest) -> None:
        """Checks that the files of a complete bundle read no other files than those that its manifest lists.

        Args:
            directory: path of the bundle.
            manifest: its manifest.

        Raises:
            ValueError: names the file.
        """
        return None

    def is_weights_file(self, name: str) -> bool:
        """Whether a path of a bundle is a file of weights of this format; no signature names such files."""
        return False
