"""Every code block on every page of the documentation runs, and prints what the page says."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[1] / "docs"
WORKER = Path(__file__).with_name("docs_worker.py")
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
WITH_CODE = [page for page in PAGES if re.search(r"^```(python|bash)$", (DOCS / page).read_text(), re.MULTILINE)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of all pages, run in one process, as converters leak and crash."""
    directory = tmp_path_factory.mktemp("docs")
    environment = os.environ | {"KERAS_BACKEND": "tensorflow", "MPLBACKEND": "Agg"}
    with open(directory / "log", "w") as log:
        command = [sys.executable, WORKER, directory, *WITH_CODE]
        subprocess.run(command, stdout=log, stderr=log, env=environment, check=False)
    if not (directory / "results.json").exists():
        pytest.fail((directory / "log").read_text()[-3000:], pytrace=False)
    return json.loads((directory / "results.json").read_text())


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", WITH_CODE)
def test_code_runs(results, page):
    assert page in results, "the process ended before this page"
    assert "error" not in results[page], results[page]["error"]
    assert results[page]["blocks"] >= 1


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_to_pages(page):
    """Those to pages that are made with the site are checked by its build."""
    made = (
        "examples/",
        "mechanisms/",
        "mixers/",
        "recurrences/",
        "positions/",
        "models/",
        "reference/",
        "catalog.md",
    )
    for target in re.findall(r"\]\(([^)#\s]+)", (DOCS / page).read_text()):
        path = os.path.normpath(os.path.join(os.path.dirname(page), target))
        assert target.startswith("https://") or path.startswith(made) or (DOCS / path).exists(), target


def test_every_page_is_in_the_navigation():
    """`attention.md` is put there by the hook, which makes it anew."""
    listed = (DOCS.parent / "mkdocs.yml").read_text()
    assert [page for page in PAGES if page != "attention.md" and f": {page}\n" not in listed] == []
