"""Files and folders that are written beside their place, and moved there when they are whole."""

import contextlib
import pathlib
import secrets
import shutil


@contextlib.contextmanager
def replacing_file(path):
    """Gives a path beside `path`, whose file takes the place of that one if the block completes, and is removed if not.

    Args:
        path: str or path.

    Yields:
        The path to write to; it ends as `path` does.
    """
    path = pathlib.Path(path)
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(target):
    """Gives an empty folder beside `target`, which takes the place of that one if the block completes.

    Whatever ends the block early, an interrupt too, the new folder is removed and the old one stays.

    Args:
        target: absolute path.

    Yields:
        Path of the folder to fill.
    """
    replacement = FolderReplacement(target)
    try:
        replacement.begin()
        yield replacement.work
        replacement.commit()
    except BaseException:
        replacement.abandon()
        raise


class FolderReplacement:
    """One folder on its way to a target. `abandon` undoes it at whatever point it has reached."""

    def __init__(self, target):
        self.target = target
        self.made = []
        self.work = None
        self.aside = None

    def begin(self):
        """Makes `work`, the folder to fill."""
        parent = self.target.parent
        self.made = [each for each in (parent, *parent.parents) if not each.exists()]
        parent.mkdir(parents=True, exist_ok=True)
        # Known before it is made, so that an interrupt between the two leaves nothing unknown.
        self.work = self._beside(".partial")
        self.work.mkdir()

    def commit(self):
        """Moves it to the target."""
        if self.target.exists():
            self.aside = self._beside(".old")
            self.target.rename(self.aside)
        self.work.rename(self.target)
        self.work = None
        if self.aside is not None:
            shutil.rmtree(self.aside, ignore_errors=True)

    def abandon(self):
        """Leaves things as they were."""
        if self.aside is not None and self.aside.exists() and not self.target.exists():
            self.aside.rename(self.target)
        for leftover in (self.work, self.aside):
            if leftover is not None:
                shutil.rmtree(leftover, ignore_errors=True)
        for parent in self.made:
            with contextlib.suppress(OSError):
                parent.rmdir()

    def _beside(self, suffix):
        return self.target.parent / f".{self.target.name}.{secrets.token_hex(4)}{suffix}"
