"""The files of a bundle that one format reads."""

from keras_transformer.export.data.manifest import Manifest
from keras_transformer.export.formats import get_format


def files_of(manifest: Manifest, format: str) -> list[str]:
    """Names of the files that running one format reads: its own, its weights and the tokenizer."""
    own = set(manifest.files_of(format).values())
    others = {path for each in manifest.artifacts.values() for path in each.paths} - own
    folders = own | (set() if manifest.tokenizer is None else {manifest.tokenizer.path})

    def is_read(name: str) -> bool:
        is_weights = get_format(format).is_weights_file(name) and name not in others
        return name in own or is_weights or any(name.startswith(f"{folder}/") for folder in folders)

    return [name for name in manifest.files if is_read(name)]
