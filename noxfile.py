"""The checks of CI, each in an environment of its own: `nox -l` lists them, `nox -s lint types` runs two of them.

Needs `pip install "nox[uv]"`. uv downloads a Python that is not installed here. `.ci/run` runs the same scripts of `.ci/`
in one environment.
"""

import os
import pathlib
import shutil
import sys

import nox

nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "types", "tests"]
nox.options.error_on_external_run = True

ROOT = pathlib.Path(__file__).parent
PYTHONS = ["3.11", "3.12", "3.13"]
DIST = ROOT / "build" / "dist"
# What is run with each set of versions: every runtime, layers, checkpoints, texts and generation, in a few minutes.
SMOKE = [
    "tests/export/test_stored_bundles.py",
    "tests/test_readme.py",
    "tests/attention/test_masks.py",
    "tests/attention/test_multi_head_attention.py",
    "tests/checkpoints/test_folder.py",
    "tests/generation/test_generator.py",
    "tests/text/test_sentencepiece.py",
    "tests/text/test_wordpiece.py",
]
PYTEST = ["pytest>=8,<9.2", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "setuptools>=77"]
# Extras of the library that its tests use. Those of the tests alone would raise the versions of Keras and protobuf.
EXTRAS = ".[audio,chat,demo,gguf,grammar,grpc,metrics,vision]"
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


def script(session: nox.Session, name: str, *arguments: str) -> None:
    """Runs a script of `.ci/`, which `.ci/run` runs too."""
    session.run("bash", f".ci/{name}", *arguments, *session.posargs, env=QUIET, external=True)


def smoke(session: nox.Session) -> None:
    """Runs the tests that are given behind `--`, or those of `SMOKE`."""
    tests = session.posargs or ["-m", "not exhaustive", "--timeout", "900", "--disable-warnings", *SMOKE]
    session.run("pytest", *tests, env=QUIET)


@nox.session
def lint(session: nox.Session) -> None:
    """Mistakes and form of the code, by ruff."""
    session.install("ruff>=0.8")
    script(session, "lint")


@nox.session
def types(session: nox.Session) -> None:
    """Types, by pyright and mypy."""
    session.install(".[test]")
    script(session, "types")


@nox.session(python=PYTHONS)
@nox.parametrize("shard", [nox.param("1/2", id="export"), nox.param("2/2", id="rest")])
def tests(session: nox.Session, shard: str) -> None:
    """All tests but the exhaustive ones, in two halves."""
    session.install(".[test]")
    script(session, "tests", shard)


@nox.session
def jax(session: nox.Session) -> None:
    """Training of every layer on the JAX backend."""
    session.install(".[test]")
    script(session, "jax")


@nox.session(python=PYTHONS)
def lowest(session: nox.Session) -> None:
    """The smoke tests with the lowest versions that setup.py allows."""
    session.install("--resolution", "lowest-direct", EXTRAS)
    session.install(*PYTEST)
    smoke(session)


@nox.session(python=PYTHONS)
def newest(session: nox.Session) -> None:
    """The smoke tests with the newest versions that setup.py allows."""
    session.install("--upgrade", "--resolution", "highest", ".[test]")
    smoke(session)


@nox.session
def docs(session: nox.Session) -> None:
    """The site, in build/site; a link that leads nowhere is an error."""
    session.install(".[docs]")
    session.run("mkdocs", "build", "--strict", env=QUIET)


@nox.session
def site(session: nox.Session) -> None:
    """The site of this version beside those of others, on the branch gh-pages; `-- --push` publishes it."""
    session.install(".[docs]")
    source = (ROOT / "keras_transformer" / "version.py").read_text()
    minor = source.split('__version__ = "')[1].split('"')[0].rpartition(".")[0]
    session.run("mike", "deploy", "--update-aliases", *session.posargs, minor, "latest", env=QUIET)
    session.run("mike", "set-default", *session.posargs, "latest")


@nox.session
def wheels(session: nox.Session) -> None:
    """Wheel and source distribution in build/dist, checked; then the demo, from the wheel in a clean environment."""
    session.install("build[uv]", "twine>=6.1", "check-wheel-contents>=0.6")
    shutil.rmtree(DIST, ignore_errors=True)
    session.run("python", "-m", "build", "--installer", "uv", "--outdir", str(DIST), ".")
    files = sorted(map(str, DIST.iterdir()))
    session.run("twine", "check", "--strict", *files)
    wheel = next(file for file in files if file.endswith(".whl"))
    session.run("check-wheel-contents", wheel)
    clean = pathlib.Path(session.create_tmp(), "clean")
    python = clean / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    session.run("uv", "venv", "--clear", "--python", session.python or sys.executable, str(clean), external=True)
    session.run("uv", "pip", "install", "--python", str(python), f"{wheel}[demo]", external=True)
    with session.chdir(clean):  # Where no checkout is found before the wheel.
        command = [str(python.with_name("keras-transformer")), "demo"]
        session.run(*command, env=QUIET, external=True)


@nox.session
def sbom(session: nox.Session) -> None:
    """A list of all that an installation brings, with versions and licenses, in CycloneDX: build/sbom.json."""
    session.install("cyclonedx-bom>=7,<8")
    clean = pathlib.Path(session.create_tmp(), "clean")
    session.run("uv", "venv", "--clear", "--python", sys.executable, str(clean), external=True)
    session.run("uv", "pip", "install", "--python", str(clean / "bin" / "python"), ".", external=True)
    output = ROOT / "build" / "sbom.json"
    os.makedirs(output.parent, exist_ok=True)
    session.run("cyclonedx-py", "environment", "--output-reproducible", "-o", str(output), str(clean))


@nox.session
def dependencies(session: nox.Session) -> None:
    """docs/dependencies.md against what is installed."""
    session.install(".[test,docs]")
    session.run("python", "benchmarks/dependencies_table.py", "--check")
