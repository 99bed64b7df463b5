"""Files are the same whatever instructions of a processor the libraries use that compute and write them."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from keras_transformer.export import load

pytestmark = pytest.mark.exhaustive
WORKER = pathlib.Path(__file__).with_name("processor_worker.py")
SETTINGS = {
    "without oneDNN": {"TF_ENABLE_ONEDNN_OPTS": "0"},
    "oneDNN": {"TF_ENABLE_ONEDNN_OPTS": "1"},
    "oneDNN with AVX2": {"TF_ENABLE_ONEDNN_OPTS": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "NumPy without AVX2": {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    found = {}
    for name, setting in SETTINGS.items():
        found[name] = tmp_path_factory.mktemp("processor")
        command = [sys.executable, str(WORKER), str(found[name])]
        result = subprocess.run(command, env=os.environ | setting, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr[-2000:]
    return found


def files(folder):
    kinds = (".onnx", ".data", ".tflite")
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.suffix in kinds}


@pytest.mark.parametrize("name", list(SETTINGS)[1:])
def test_files_have_the_same_bytes(name, folders):
    expected, found = files(folders["without oneDNN"]), files(folders[name])
    assert len(expected) > 8
    assert [path for path in expected if found[path] != expected[path]] == []


@pytest.mark.parametrize("bundle", ["network", "network_full_int8"])
@pytest.mark.parametrize("backend", ["onnx", "tflite"])
def test_files_compute_the_same_with_any_number_of_threads(bundle, backend, folders):
    images = np.random.default_rng(1).normal(size=(9, 32, 32, 3)).astype("float32")
    paths = [folders["without oneDNN"] / bundle] * 2
    (one,), (two,) = (
        load(path, backend, num_threads=threads)({"x": images}).values()
        for path, threads in zip(paths, (1, 2), strict=True)
    )
    assert abs(one - two).max() == 0
