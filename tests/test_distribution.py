"""Metadata of the distribution, links of the README as an index shows them, and what workflows run."""

import importlib.util
import re
from pathlib import Path

import pytest
import setuptools
import yaml

from keras_transformer.version import __version__

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
REPOSITORY = "https://example.org/owner/name"


def setup_script(monkeypatch, repository):
    """The module `setup.py`, and what it hands to setuptools, where the repository is published at an address."""
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    monkeypatch.setenv("REPOSITORY_URL", repository)
    spec = importlib.util.spec_from_file_location("_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, given


def prose(markdown):
    """Markdown without the blocks of code."""
    return re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)


def test_links_of_the_readme_lead_to_files_of_the_repository(monkeypatch):
    _, given = setup_script(monkeypatch, REPOSITORY + "/")
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(given["long_description"]))
    base = re.escape(REPOSITORY)
    paths = [re.fullmatch(rf"{base}/(?:blob|raw)/v{re.escape(__version__)}/([^#]+)(#.*)?", each) for each in targets]
    assert len(paths) > 30
    assert all(paths)
    assert [path[1] for path in paths if not (ROOT / path[1]).exists()] == []
    assert f"({REPOSITORY}/raw/v{__version__}/docs/pipeline.svg)" in given["long_description"]
    assert given["project_urls"]["Issues"] == f"{REPOSITORY}/issues"


def test_without_a_repository_there_is_no_dead_link(monkeypatch):
    _, given = setup_script(monkeypatch, "")
    assert re.findall(r"\]\([^)\s]+\)", prose(given["long_description"])) == []
    assert "[mechanisms" not in given["long_description"]
    assert "21 mechanisms (exact" in given["long_description"]
    assert given["project_urls"] == {}


def test_code_and_whole_addresses_stay(monkeypatch):
    module, _ = setup_script(monkeypatch, "")
    text = "[a](docs/a.md#b) [b](https://b.org) [c](#d) ![e](f.png)\n```python\nx[i](y)\n```\n[g](h)"
    expected = "a [b](https://b.org) [c](#d) \n```python\nx[i](y)\n```\ng"
    assert module.long_description(text, "", "1.0.0") == expected
    blocks = re.findall(r"^```.*?^```$", README, re.DOTALL | re.MULTILINE)
    assert all(block in module.long_description(README, REPOSITORY, "1.0.0") for block in blocks)


def test_version_is_everywhere_the_same(monkeypatch):
    _, given = setup_script(monkeypatch, "")
    assert given["version"] == __version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == __version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{__version__}]" in changes
    assert len(changes.splitlines()) < 150


def sessions():
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    return set(re.findall(r"^@nox\.session.*\n(?:@nox.*\n)?def (\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_run_sessions_that_exist(path):
    text = path.read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    assert content
    named = set(re.findall(r"nox -s (?:\")?([\w ]+)", text)) - {"$"}
    listed = {each.split("-")[0] for each in re.findall(r"session: ([\w.-]+)", text)}
    listed |= {each.strip() for line in re.findall(r"session: \[(.*)\]", text) for each in line.split(",")}
    used = {word for each in named for word in each.split()} | listed
    assert used <= sessions()
    if path.parent.name == "workflows":
        assert all("timeout-minutes" in job for job in content["jobs"].values())
        assert content["permissions"] == {"contents": "read"}


def test_sessions_and_ci_run_the_same_scripts():
    run = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    scripts = re.findall(r"^\.ci/(\w+)", run, re.MULTILINE)
    assert scripts == ["lint", "types", "jax", "tests"]
    assert set(scripts) <= sessions()
    assert set(re.findall(r'script\(session, "(\w+)"', (ROOT / "noxfile.py").read_text(encoding="utf-8"))) == set(
        scripts
    )
    assert all((ROOT / ".ci" / each).stat().st_mode & 0o100 for each in scripts)


def test_smoke_tests_exist():
    listed = re.findall(r'"(tests/[\w/]+\.py)"', (ROOT / "noxfile.py").read_text(encoding="utf-8"))
    assert len(listed) > 5
    assert [path for path in listed if not (ROOT / path).exists()] == []


def test_every_dependency_is_on_the_page(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    table = importlib.import_module("dependencies_table")
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    names = re.findall(r"^\| `([\w.-]+)` \|", page, re.MULTILINE)
    assert sorted(names) == sorted(table.requirements()) == sorted(table.WHY)
    assert "| unknown |" not in page
    assert table.stored_licenses()["soxr"] == table.license_of("soxr") == "LGPL-2.1-or-later"
