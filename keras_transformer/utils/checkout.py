"""Import of `keras_transformer.export` from a checkout, where its directory is next to the package."""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

_PACKAGE = Path(__file__).resolve().parents[1]
_CHECKOUT = _PACKAGE.parent / "export" / "__init__.py"


class _ExportFinder(importlib.abc.MetaPathFinder):
    """Finds `keras_transformer.export` in a checkout, and nothing else."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "keras_transformer.export":
            return None
        return importlib.util.spec_from_file_location(
            fullname, _CHECKOUT, submodule_search_locations=[str(_CHECKOUT.parent)]
        )


def find_export() -> None:
    """Makes `keras_transformer.export` importable from a checkout that is not installed.

    In an installed package, `export` is a subdirectory and this has no effect.
    """
    if not (_PACKAGE / "export").is_dir() and _CHECKOUT.is_file():
        sys.meta_path.insert(0, _ExportFinder())
