"""Runs a function in a forked process with limits, and notices what it opens outside of its folder."""

import ctypes
import faulthandler
import json
import os
import pathlib
import resource
import signal
import site
import struct
import sys
import traceback

_OPENED = 0x1 | 0x2 | 0x4 | 0x20 | 0x400 | 0x800  # Access, modify, attributes, open, delete, move.
_CHANGED = 0x100 | 0x200 | 0x40 | 0x80  # Created, deleted, moved.
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_ROOT = pathlib.Path(__file__).parents[2]
_READABLE = (
    "/usr",
    "/lib",
    "/lib64",
    "/proc",
    "/sys",
    "/dev",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/host",
    "/bin",
)


class Watch:
    """Watches a folder and a file in it, by the kernel: the reads of native code are noticed too.

    Args:
        folder: path. What is created or removed in it is noticed, but not what changes in folders in it.
        file: path. Every use is noticed.
    """

    def __init__(self, folder, file):
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK)
        for path, mask in ((folder, _CHANGED), (file, _OPENED)):
            if libc.inotify_add_watch(self._descriptor, os.fsencode(path), mask) < 0:
                raise OSError(ctypes.get_errno(), f"{path} cannot be watched")

    def events(self):
        """Returns what happened since the last call: list of names, "" for the file."""
        try:
            data = os.read(self._descriptor, 2**16)
        except BlockingIOError:
            return []
        names, at = [], 0
        while at < len(data):
            _, mask, _, length = struct.unpack_from("iIII", data, at)
            name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode(errors="replace")
            names.append(f"{mask:#x} {name or 'the file outside'}")
            at += 16 + length
        return names


def run(function, folder, seconds=20.0, memory=3 << 30):
    """Returns the outcome of `function()` in a forked process.

    Args:
        function: returns a str, or raises.
        folder: path. The only folder in which Python code may write, and beside the installation the only one it may read.
        seconds: float. The time limit.
        memory: int. The bytes that it may take on top of those of this process.

    Returns:
        str: "done ...", "raised Class: message", "hang", "signal N", "memory", or "escape ...".
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            outcome = _inside(function, pathlib.Path(folder), seconds, memory)
            os.write(writer, json.dumps(outcome[:4000]).encode("utf-8", "replace"))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) == signal.SIGALRM else f"signal {os.WTERMSIG(status)}"
    return json.loads(data) if data else "signal 0: it ended without an outcome"


def _inside(function, folder, seconds, memory):
    faulthandler.disable()
    silent = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(silent, descriptor)
    size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 30, 1 << 30))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    (folder / "tmp").mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(folder / "tmp")
    escapes = _audit(folder)
    try:
        outcome = f"done {function()}"
    except MemoryError as error:
        outcome = f"memory {error}"
    except BaseException as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        names = ".".join(each.__name__ for each in type(error).__mro__[:-1])
        outcome = f"raised {names}: {error} ({pathlib.Path(place.filename).name}:{place.lineno})"
    signal.setitimer(signal.ITIMER_REAL, 0)
    return f"escape {escapes[0]}" if escapes else outcome


def _audit(folder):
    """Returns a list to which paths are added that Python code opens or changes outside of the folder."""
    import tempfile

    tempfile.tempdir = None
    escapes = []
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, str(_ROOT), *site.getsitepackages(), *sys.path}
    readable = tuple(os.path.realpath(each) for each in prefixes if each) + _READABLE
    own = os.path.realpath(folder)

    def hook(event, arguments):
        if event not in (
            "open",
            "os.remove",
            "os.rename",
            "os.mkdir",
            "os.rmdir",
            "os.symlink",
            "os.link",
            "os.truncate",
        ):
            return
        path = arguments[0]
        if not isinstance(path, (str, bytes)) or not path:
            return
        path, place = os.fsdecode(path), arguments[-1] if event in ("os.remove", "os.rmdir", "os.mkdir") else -1
        if isinstance(place, int) and place >= 0 and not os.path.isabs(path):  # Relative to an open folder.
            path = os.path.join(os.readlink(f"/proc/self/fd/{place}"), path)
        found = os.path.realpath(path)
        writes = event != "open" or bool((arguments[2] or 0) & _WRITES)
        if found == own or found.startswith(own + os.sep) or found.startswith("/dev/"):
            return
        if writes or not found.startswith(readable):
            escapes.append(f"{event} {found}")

    sys.addaudithook(hook)
    return escapes
