"""Makes `tests.fuzz` importable, as in `python -m tests.fuzz`."""

import pathlib
import sys

# Last, so that an installed package is the one that is tested.
sys.path.append(str(pathlib.Path(__file__).parents[2]))
