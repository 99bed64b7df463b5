"""The pages on `examples/deploy` show its files as they are."""

import re
from pathlib import Path

import pytest
from deploy_cases import FOLDER

DOCS = Path(__file__).parents[2] / "docs"
LANGUAGES = {"cpp": "cpp", "node": "js", "web": "js", "react_native": "js", "android": "kotlin", "ios": "swift"}
SUFFIXES = {"cpp": (".cpp", ".h"), "js": (".js",), "kotlin": (".kt",), "swift": (".swift",)}


def lines(text):
    """The lines without their indentation, which a page leaves out."""
    return "\n".join(line.strip() for line in text.splitlines())


@pytest.mark.parametrize("page", LANGUAGES)
def test_code_on_a_page_is_that_of_a_file(page):
    language = LANGUAGES[page]
    blocks = re.findall(
        rf"^```{language}\n(.*?)^```$", (DOCS / f"cookbook/{page}.md").read_text(), re.DOTALL | re.MULTILINE
    )
    paths = [
        path for path in FOLDER.rglob("*") if path.suffix in SUFFIXES[language] and "node_modules" not in path.parts
    ]
    files = [lines(path.read_text()) for path in paths]
    assert len(blocks) >= 2
    for block in blocks:
        assert any(lines(block) in content for content in files), block


def test_paths_on_the_pages_exist():
    pages = [DOCS / f"cookbook/{name}.md" for name in LANGUAGES]
    paths = [path for page in pages for path in re.findall(r"(?<![./])examples/deploy/[\w/.-]*\w", page.read_text())]
    assert len(paths) > 8
    # The bundles are copied to the assets by the reader.
    assert [path for path in paths if not (FOLDER.parents[1] / path.removesuffix("/assets")).exists()] == []
