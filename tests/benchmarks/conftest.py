"""What benchmarks of a test file print and write."""

import pytest

from benchmark_reports import run_benchmarks


@pytest.fixture(scope="module")
def reports(request, tmp_path_factory):
    """`Reports` of the commands in `COMMANDS` of the test file."""
    for needed in ("keras_hub", "torch", "transformers"):
        pytest.importorskip(needed)
    return run_benchmarks(request.module.COMMANDS, tmp_path_factory.mktemp("benchmarks"))
