"""Ternary kernels of a SavedModel: they stay in float32, which is what TensorFlow multiplies."""


def quantize(spec, directory, files):
    """Leaves the files as they are.

    Args:
        spec: the `ExportSpec`.
        directory: `pathlib.Path` of the bundle.
        files: dict of signature name to the file's path in it.
    """
