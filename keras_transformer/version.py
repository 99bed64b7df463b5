"""The version and the distribution name of the package, readable without importing it."""

import functools

__version__ = "1.0.0"

# The name under which pip installs this package. "keras-transformer" on PyPI is another project.
DISTRIBUTION = "keras-transformer-export"


def install_command(extra: str) -> str:
    """Returns the command that installs the package with an extra, for error messages.

    It names the folder or the address that the package was installed from: no index has it under its name yet.

    Args:
        extra: str. One of the extras of `setup.py`, such as `"serve"`.
    """
    source = _source()
    if source is None:
        return f"pip install '.[{extra}]' in a clone of {DISTRIBUTION}"
    if "://" in source:
        return f"pip install '{DISTRIBUTION}[{extra}] @ {source}'"
    return f"pip install '{source}[{extra}]'"


@functools.cache
def _source() -> str | None:
    """The folder, or the address of the repository, that pip installed the package from; None where it does not say."""
    import importlib.metadata
    import json
    import pathlib
    import urllib.parse
    import urllib.request

    try:
        text = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        return None
    record = json.loads(text) if text else {}
    url = str(record.get("url", ""))
    if "vcs_info" in record:
        return f"{record['vcs_info'].get('vcs', 'git')}+{url}"
    parts = urllib.parse.urlsplit(url)
    folder = urllib.request.url2pathname(parts.path) if parts.scheme == "file" else ""
    return folder if folder and pathlib.Path(folder, "setup.py").is_file() else None
