"""Bundles are written atomically, and never destroy other files."""

import errno
import json
import os
import signal

import pytest

from keras_transformer.export import ExportError, InvalidBundleError, OutOfSpaceError
from keras_transformer.export.bundle import writing
from keras_transformer.export.bundle.manifest import timestamp
from keras_transformer.export.data.manifest import FILE, PRODUCER
from keras_transformer.export.errors import UnknownFormatError
from keras_transformer.export.formats import check_formats
from keras_transformer.utils import atomic_write


def make_bundle(directory, text="old"):
    """Writes the minimal content that `export` recognizes as a bundle."""
    directory.mkdir(exist_ok=True)
    (directory / "model.onnx").write_text(text)
    (directory / FILE).write_text(json.dumps({"producer": PRODUCER, "files": {"model.onnx": {}}}))
    return directory


def fail_within(target, error):
    with writing.replacing(target) as work:
        (work / "half").write_text("...")
        raise error


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def test_a_new_bundle_appears_when_the_block_ends(tmp_path):
    target = tmp_path / "a" / "b" / "bundle"
    with writing.replacing(target) as work:
        (work / "file").write_text("new")
        assert not target.exists()
        assert work.parent == target.parent
    assert (target / "file").read_text() == "new"
    assert names(target.parent) == ["bundle"]
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o777 & ~umask


def test_an_old_bundle_is_replaced_whole(tmp_path):
    target = make_bundle(tmp_path / "bundle")
    with writing.replacing(target) as work:
        (work / "model.tflite").write_text("new")
        assert (target / "model.onnx").read_text() == "old"
    assert names(target) == ["model.tflite"]
    assert names(tmp_path) == ["bundle"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError, ExportError])
def test_nothing_is_left_when_the_block_fails(tmp_path, error):
    target = make_bundle(tmp_path / "bundle")
    with pytest.raises(error):
        fail_within(target, error("stop"))
    assert names(tmp_path) == ["bundle"]
    assert (target / "model.onnx").read_text() == "old"


def test_parents_made_on_the_way_are_removed(tmp_path):
    with pytest.raises(ValueError, match="stop"), writing.replacing(tmp_path / "a" / "b" / "bundle"):
        raise ValueError("stop")
    assert names(tmp_path) == []


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def has_exchange(request, monkeypatch):
    """File systems that exchange two folders in one step, and those that do not."""
    if not request.param:
        monkeypatch.setattr(atomic_write, "exchange", lambda one, other: False)
    return request.param


def test_the_old_bundle_comes_back_when_the_last_step_fails(tmp_path, monkeypatch, has_exchange):
    target = make_bundle(tmp_path / "bundle")
    rename = type(target).rename

    def failing(path, to):
        if path.suffix == ".partial":
            raise OSError(errno.EIO, "broken disk")
        return rename(path, to)

    def failing_exchange(one, other):
        raise OSError(errno.EIO, "broken disk")

    if has_exchange:
        monkeypatch.setattr(atomic_write, "exchange", failing_exchange)
    monkeypatch.setattr(type(target), "rename", failing)
    with pytest.raises(OSError, match="broken disk"), writing.replacing(target):
        pass
    assert names(tmp_path) == ["bundle"]
    assert (target / "model.onnx").read_text() == "old"


def killed(target, step):
    """Replaces a bundle in a process that is killed at a step of the replacement."""
    child = os.fork()
    if not child:
        count = iter(range(10))

        def kill(*_, **__):
            os.kill(os.getpid(), signal.SIGKILL)

        rename = type(target).rename
        if step == "writing":
            atomic_write.FolderReplacement.commit = kill
        elif step == "removing":
            atomic_write.shutil.rmtree = kill
        else:
            type(target).rename = lambda path, to: kill() if next(count) else rename(path, to)
        try:
            with writing.replacing(target) as work:
                (work / "model.tflite").write_text("new")
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


@pytest.mark.parametrize("step", ["writing", "removing"])
def test_there_is_always_a_bundle(tmp_path, step):
    target = make_bundle(tmp_path / "bundle")
    killed(target, step)
    assert names(target) == (["manifest.json", "model.onnx"] if step == "writing" else ["model.tflite"])
    assert len(names(tmp_path)) == 2
    with writing.replacing(target) as work:
        assert names(tmp_path) == sorted([work.name, "bundle"]), "what the dead process left is gone"
        (work / "model.onnx").write_text("third")
    assert names(tmp_path) == ["bundle"]
    assert names(target) == ["model.onnx"]


def test_a_bundle_that_was_moved_away_comes_back(tmp_path, monkeypatch):
    """Without an exchange in one step there is a moment between two renames."""
    monkeypatch.setattr(atomic_write, "exchange", lambda one, other: False)
    target = make_bundle(tmp_path / "bundle")
    killed(target, "renaming")
    assert not target.exists()
    with writing.replacing(target):
        assert (target / "model.onnx").read_text() == "old"
    assert names(tmp_path) == ["bundle"]


def test_what_others_write_is_not_swept(tmp_path):
    target = make_bundle(tmp_path / "bundle")
    one, other = atomic_write.FolderReplacement(target), atomic_write.FolderReplacement(target)
    foreign = tmp_path / ".bundle.12345678.partial.mine"
    foreign.mkdir()
    work = one.begin()
    (work / "half").write_text("...")
    other.begin()
    other.commit()
    assert (work / "half").exists()
    one.commit()
    assert names(target) == ["half"]
    assert names(tmp_path) == [foreign.name, "bundle"]


def test_what_is_being_written_can_be_abandoned_from_outside(tmp_path):
    target = make_bundle(tmp_path / "bundle")
    replacing = writing.replacing(target)
    work = replacing.__enter__()
    (work / "half").write_text("...")
    writing.abandon_all()
    assert names(tmp_path) == ["bundle"]
    replacing.__exit__(ValueError, ValueError("stop"), None)
    assert names(tmp_path) == ["bundle"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("FAILED_PRECONDITION: variables.data; No space left on device"),
    ],
)
def test_a_full_disk_has_an_error_of_its_own(tmp_path, error):
    with pytest.raises(OutOfSpaceError, match="no space left") as caught, writing.replacing(tmp_path / "bundle"):
        raise error
    assert str(tmp_path / "bundle") in str(caught.value)
    assert names(tmp_path) == []


def test_the_users_own_files_are_never_replaced(tmp_path):
    assert writing.check_target(tmp_path / "new") == (tmp_path / "new").resolve()
    assert writing.check_target(tmp_path) == tmp_path.resolve(), "an empty directory may be filled"
    target = make_bundle(tmp_path / "bundle")
    assert writing.check_target(target) == target.resolve()
    (target / "thesis.tex").write_text("years of work")
    with pytest.raises(InvalidBundleError, match=r"'thesis\.tex', which is not part of a bundle"):
        writing.check_target(target)
    with pytest.raises(InvalidBundleError, match="is a file"):
        writing.check_target(target / "thesis.tex")
    with pytest.raises(InvalidBundleError, match="not a writable directory"):
        writing.check_target(target / "thesis.tex" / "bundle")
    (target / "thesis.tex").unlink()
    (target / "manifest.json").write_text('{"producer": "another tool", "files": {"model.onnx": {}}}')
    with pytest.raises(InvalidBundleError, match="it is not replaced"):
        writing.check_target(target)


def test_formats_are_checked_and_put_in_order():
    assert check_formats(["onnx", "saved_model", "onnx"]) == ["saved_model", "onnx"]
    assert check_formats("tflite") == ["tflite"]
    for wrong in (["coreml"], [], ["onnx", "ONNX"]):
        with pytest.raises(UnknownFormatError, match="valid: saved_model, tflite, onnx"):
            check_formats(wrong)


def test_the_date_may_be_set_for_reproducible_bundles(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert timestamp() == "1970-01-02T00:00:00Z"
