"""Files of packed weights beside a bundle: which are used, and what is left of those that were not completed."""

import dataclasses
import hashlib
import os
import pathlib
import resource
import subprocess
import sys
import time

import numpy as np
import pytest
from targets.tflite_graphs import Built

from keras_transformer.export import ExportError
from keras_transformer.export.runtime.weight_folder import WeightFolder, weight_folder
from keras_transformer.export.tflite import runtime, weight_cache
from keras_transformer.export.tflite.compiled_file import CompiledFile
from keras_transformer.export.tflite.tree import write
from keras_transformer.export.tflite.weight_cache import IN_MEMORY, NONE, WeightCache

WEIGHTS = np.random.default_rng(0).normal(size=(64, 32)).astype("float32")
X = np.random.default_rng(1).normal(size=(1, 32)).astype("float32")


def model_file(path, weights=WEIGHTS):
    """A file with one product, of which XNNPACK packs the weights."""
    built = Built(x=("FLOAT32", (1, 32)))
    inputs = ["x", built.constant(weights), built.constant(np.zeros(64, "float32"))]
    built.finish(y=built.add("FULLY_CONNECTED", inputs, "FLOAT32", (1, 64), "FullyConnected"))
    path.write_bytes(write(built.model))
    return path


@pytest.fixture
def model(tmp_path):
    return model_file(tmp_path / "model.tflite")


@pytest.fixture
def folder(tmp_path):
    return WeightFolder(tmp_path / "weights")


class Opening:
    """Opens nothing: writes "packed" where a runtime would, and remembers what it was called with."""

    def __init__(self, content=b"packed"):
        self.content, self.calls = content, []

    def __call__(self, model, weights):
        self.calls.append((model, weights))
        if weights not in (IN_MEMORY, NONE) and not pathlib.Path(weights).stat().st_size:
            pathlib.Path(weights).write_bytes(self.content)
        return self.content if weights in (IN_MEMORY, NONE) else pathlib.Path(weights).read_bytes()


def output(cache, expected=X @ WEIGHTS.T):
    """Computes with packed weights, and compares; returns the output."""
    found = CompiledFile(1, cache).run("serve", {"x": X})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    return found


def files(folder, suffix=".xnnpack"):
    return sorted(folder.path.glob(f"*{suffix}"))


def test_weights_are_packed_once(model, folder):
    found = [output(WeightCache(model, "a", folder)) for _ in range(2)]
    np.testing.assert_array_equal(*found)
    (path,) = files(folder)
    assert path.stat().st_size > WEIGHTS.nbytes
    opening = Opening()
    WeightCache(model, "a", folder).open(opening)
    (part,) = files(folder, ".tflite")
    assert opening.calls == [(part, str(path))]
    assert part.read_bytes() == model.read_bytes()  # It has no dynamic signature.
    for each in (path, part):
        digest = hashlib.sha256(each.read_bytes()).hexdigest()
        assert digest.startswith(each.stem.split("-")[1])
    assert sorted(folder.path.iterdir()) == sorted([path, part])


def test_packed_weights_are_those_that_are_computed_with(tmp_path, model):
    folder = WeightFolder(tmp_path / "weights", is_checked=False)
    output(WeightCache(model, "a", folder))
    (path,) = files(folder)
    content, first = path.read_bytes(), WEIGHTS[0, :1]
    assert content.count(first.tobytes()) == 1
    path.write_bytes(content.replace(first.tobytes(), (first + 1).tobytes()))
    altered = WEIGHTS.copy()
    altered[0, 0] += 1
    output(WeightCache(model, "a", folder), X @ altered.T)


@pytest.mark.parametrize("damage", ["changed", "short", "empty", "unreadable"])
def test_a_damaged_file_is_written_again(model, folder, damage):
    output(WeightCache(model, "a", folder))
    (path,), (part,) = files(folder), files(folder, ".tflite")
    for each in (path, part):
        content = each.read_bytes()
        if damage == "unreadable":
            each.unlink()
            each.symlink_to(folder.path / "absent")
        else:
            damaged = {"changed": content[:-9] + b"?" + content[-8:], "short": content[:-9], "empty": b""}[damage]
            each.write_bytes(damaged)
        output(WeightCache(model, "a", folder))
        assert each.read_bytes() == content
        assert not each.is_symlink()
    assert len(list(folder.path.iterdir())) == 2


def test_a_bundle_that_moves_keeps_its_weights(tmp_path, model, folder):
    output(WeightCache(model, "a", folder))
    moved = tmp_path / "elsewhere" / "model.tflite"
    moved.parent.mkdir()
    model.rename(moved)
    opening = Opening()
    WeightCache(moved, "a", folder).open(opening)
    assert len(opening.calls) == 1
    output(WeightCache(moved, "a", folder))
    assert len(files(folder)) == 1


def test_weights_of_another_file_are_not_used(tmp_path, model, folder, monkeypatch):
    output(WeightCache(model, "a", folder))
    other = model_file(tmp_path / "other.tflite", 2 * WEIGHTS)
    assert other.stat().st_size == model.stat().st_size
    output(WeightCache(other, "b", folder), X @ (2 * WEIGHTS).T)
    assert len(files(folder)) == 2
    for name, value in (("processor", lambda: "another"), ("_VERSION", "another")):
        monkeypatch.setattr(weight_cache, name, value)
        output(WeightCache(model, "a", folder))
    assert len(files(folder)) == 4
    monkeypatch.setattr(weight_cache.LITERT.__class__, "version", "another")
    output(WeightCache(model, "a", folder))
    assert len(files(folder)) == 5


def test_a_file_is_checked_until_it_was_opened(model, folder, monkeypatch):
    checked = []
    monkeypatch.setattr(runtime, "check_flatbuffer", checked.append)
    for number, damage in enumerate((False, False, True), 1):
        if damage:
            (part,) = files(folder, ".tflite")
            part.write_bytes(part.read_bytes()[:-1])
        opened = runtime.TFLiteRuntime(str(model), "serve", 1, WeightCache(model, "a", folder))
        np.testing.assert_allclose(opened({"x": X})["y"], X @ WEIGHTS.T, rtol=1e-5, atol=1e-5)
        assert len(checked) == (1, 1, 2)[number - 1]
    runtime.TFLiteRuntime(str(model), "serve", 1)  # Without a folder.
    runtime.TFLiteRuntime(
        str(model), "serve", 1, WeightCache(model, "a", dataclasses.replace(folder, is_checked=False))
    )
    assert len(checked) == 4


def test_unchecked_files_are_told_by_their_place_and_time(tmp_path, model):
    folder = WeightFolder(tmp_path / "weights", is_checked=False)
    output(WeightCache(model, "a", folder))
    opening = Opening()
    WeightCache(model, "a", folder).open(opening)
    assert len(opening.calls) == 1
    before = model.stat().st_mtime_ns
    model_file(model, 3 * WEIGHTS)
    os.utime(model, ns=(before + 10**9, before + 10**9))
    output(WeightCache(model, "a", folder), X @ (3 * WEIGHTS).T)
    assert len(files(folder)) == 2


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, model):
    (tmp_path / "file").write_text("")
    opening = Opening()
    folder = WeightFolder(tmp_path / "file" / "weights")
    assert WeightCache(model, "a", folder).open(opening) == b"packed"
    assert opening.calls == [(model, IN_MEMORY)]
    output(WeightCache(model, "a", folder))


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_is_no_error(tmp_path, model):
    tmp_path.chmod(0o555)
    try:
        output(WeightCache(model, "a", WeightFolder(tmp_path / "weights")))
    finally:
        tmp_path.chmod(0o755)
    assert [each.name for each in tmp_path.iterdir()] == ["model.tflite"]


def test_a_full_disk_is_no_error(model, folder, monkeypatch):
    monkeypatch.setattr(weight_cache.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    opening = Opening()
    WeightCache(model, "a", folder).open(opening)
    assert opening.calls == [(model, IN_MEMORY)]
    assert list(folder.path.iterdir()) == []


def test_a_process_that_may_not_write_files_packs_each_signature_by_itself(model, folder):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    opening = Opening()
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, before[1]))
        WeightCache(model, "a", folder).open(opening)
        output(WeightCache(model, "a", folder))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert opening.calls == [(model, NONE)]


def test_an_interruption_leaves_nothing(model, folder):
    def interrupted(model, weights):
        pathlib.Path(weights).write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        WeightCache(model, "a", folder).open(interrupted)
    assert files(folder) == []
    assert list(folder.path.glob("*.partial")) == []


def test_what_a_killed_process_left_is_removed_later(model, folder):
    folder.path.mkdir()
    old, new = folder.path / "1.partial", folder.path / "2.partial"
    for path, age in ((old, 7200), (new, 60)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age,) * 2)
    output(WeightCache(model, "a", folder))
    assert not old.exists()
    assert new.exists()  # Its process may still write.


def test_processes_that_begin_at_once_share_the_files(model, folder):
    code = """
import sys, pathlib, numpy as np
from keras_transformer.export.runtime.weight_folder import WeightFolder
from keras_transformer.export.tflite.compiled_file import CompiledFile
from keras_transformer.export.tflite.weight_cache import WeightCache
model, folder = map(pathlib.Path, sys.argv[1:])
print("ready", flush=True)
sys.stdin.readline()
file = CompiledFile(1, WeightCache(model, "a", WeightFolder(folder)))
x = np.frombuffer(bytes.fromhex(sys.stdin.readline()), "float32").reshape(1, 32)
print(file.run("serve", {"x": x})["y"].tobytes().hex())
"""
    command = [sys.executable, "-c", code, str(model), str(folder.path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]
    for each in processes:
        assert each.stdout.readline() == "ready\n"
    for each in processes:
        each.stdin.write("\n")
        each.stdin.flush()
    found = [each.communicate(X.tobytes().hex() + "\n")[0] for each in processes]
    assert len(set(found)) == 1
    np.testing.assert_allclose(
        np.frombuffer(bytes.fromhex(found[0]), "float32"), (X @ WEIGHTS.T)[0], rtol=1e-5, atol=1e-5
    )
    assert (len(files(folder)), len(files(folder, ".tflite"))) == (1, 1)
    assert list(folder.path.glob("*.partial")) == []


def test_the_folder_of_a_bundle(tmp_path):
    assert weight_folder(tmp_path, False) is None
    beside = weight_folder(tmp_path, None)
    assert beside.path == tmp_path.with_name(f"{tmp_path.name}.weight_cache")
    assert beside.least_bytes == 2**26
    assert weight_folder(tmp_path, "/chosen", is_checked=False) == WeightFolder(pathlib.Path("/chosen"), 0, False)
    for wrong in (True, 3, ["a"]):
        with pytest.raises(ExportError, match="weight_cache must be the path of a folder, None or False"):
            weight_folder(tmp_path, wrong)


def test_small_files_stay_in_memory(model, tmp_path):
    opening = Opening()
    WeightCache(model, "a", WeightFolder(tmp_path / "weights", model.stat().st_size + 1)).open(opening)
    assert opening.calls == [(model, IN_MEMORY)]
    assert not (tmp_path / "weights").exists()
