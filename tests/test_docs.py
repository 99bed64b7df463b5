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
# Where readers look, by the word that they type: a page whose title or a heading of which has the word.
FOUND = {
    "own model": "cookbook/your_own_model.md",
    "custom layer": "cookbook/your_own_model.md",
    "LSTM": "cookbook/time_series.md",
    "time series": "cookbook/time_series.md",
    "keras.applications": "cookbook/vision.md",
    "MobileNet": "cookbook/vision.md",
    "structured data": "cookbook/structured_data.md",
    "ESP32": "cookbook/sensors.md",
    "tf.keras": "migrate.md",
    "migrate": "migrate.md",
    "TFLiteConverter": "migrate.md",
    "tf2onnx": "migrate.md",
    "PyTorch": "migrate.md",
    "FAQ": "faq.md",
    "quantize": "cookbook/quantize.md",
    "browser": "cookbook/web.md",
    "Android": "cookbook/android.md",
    "iOS": "cookbook/ios.md",
    "Raspberry Pi": "cookbook/python.md",
    "chat": "cookbook/chat.md",
    "GGUF": "cookbook/gguf.md",
    "Hugging Face": "cookbook/checkpoint.md",
    "KerasHub": "cookbook/checkpoint.md",
}
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


@pytest.mark.parametrize(("word", "page"), FOUND.items())
def test_words_that_readers_type_are_in_headings(word, page):
    words = [heading.lower() for heading in headings((DOCS / page).read_text())]
    assert any(word.lower() in heading for heading in words)


@pytest.mark.parametrize("page", ["../README.md", *PAGES])
def test_links_to_headings_lead_to_them(page):
    content = (DOCS / page).read_text()
    for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", content):
        path = (DOCS / page).parent / target if target else DOCS / page
        if not target.startswith("https://") and path.suffix == ".md" and path.exists():
            assert anchor in map(anchor_of, headings(path.read_text())), f"{target}#{anchor}"


def test_what_you_have_leads_to_where_it_goes():
    """The table of the first pages: every cell is a link, but for models of texts on a microcontroller."""
    for first in (DOCS.parent / "README.md", DOCS / "index.md"):
        table = re.search(r"^\| what do you have.*?\n\n", first.read_text(), re.MULTILINE | re.DOTALL)[0]
        head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line)
        assert head[1:] == ["Android", "iOS", "browser", "microcontroller", "server", "Python"]
        assert len(rows) == 4
        empty = [(row[0], head[index]) for row in rows for index, cell in enumerate(row) if "](" not in cell]
        assert [where for _, where in empty] == ["microcontroller", "microcontroller"]


def headings(content):
    """The title and the headings of a page."""
    return re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", content, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)


def anchor_of(heading):
    """As GitHub and the site make it."""
    words = re.sub(r"\[(.+?)\]\(.+?\)", r"\1", heading).replace("`", "")
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", words).strip().lower())


def test_every_page_is_in_the_navigation():
    """`attention.md` is put there by the hook, which makes it anew."""
    listed = (DOCS.parent / "mkdocs.yml").read_text()
    assert [page for page in PAGES if page != "attention.md" and f": {page}\n" not in listed] == []
