"""TensorFlow and Keras import less: those who import this first wait half as long.

They import other packages where they find them, for functions that no test calls. These are hidden while the two are
imported; a test that needs one imports it afterwards.
"""

import os
import sys


class _Hiding:
    """A finder before all others, which finds nothing."""

    def find_spec(self, name, path=None, target=None):
        hidden = {"jax", "matplotlib", "sklearn"} - {os.environ.get("KERAS_BACKEND")}
        if name in hidden and any(map(_is_being_imported, ("tensorflow", "keras"))):
            raise ModuleNotFoundError(f"hidden from TensorFlow and Keras by {__file__}", name=name)


def _is_being_imported(name):
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


sys.meta_path.insert(0, _Hiding())
