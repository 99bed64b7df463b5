"""What every Python process that tests start imports by itself, for `conftest.py` sets PYTHONPATH."""

import fewer_imports  # noqa: F401
