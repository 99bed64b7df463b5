"""The version and the distribution name of the package, readable without importing it."""

__version__ = "1.0.0"

# The name under which pip installs this package. "keras-transformer" on PyPI is another project.
DISTRIBUTION = "keras-transformer-export"


def install_command(extra: str) -> str:
    """Returns the command that installs the package with an extra, for error messages.

    Args:
        extra: str. One of the extras of `setup.py`, such as `"serve"`.
    """
    return f"pip install '{DISTRIBUTION}[{extra}]', or '.[{extra}]' in a clone"
