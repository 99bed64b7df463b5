"""MkDocs hook that adds the pages generated from the dicts, the docstrings and the contract cases."""

import os
import pathlib
import re
import shutil

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["COLUMNS"] = "100"  # Width of the help texts of commands.

import formulas
import ranking
from example_pages import example_pages
from mkdocs.structure.files import File, InclusionLevel
from part_pages import attention_pages, position_pages
from table_pages import model_pages, table_pages

from keras_transformer.version import __version__
from markup import benchmarks_page
from reference_pages import reference_pages

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = ROOT / "build" / "docs_sources"
_RECIPES = 3  # Number of entries of the navigation up to the recipes.


def on_startup(command, dirty):
    """Links the sources for mkdocstrings, which checks for the folder before hooks are configured."""
    _link_sources()


def on_config(config):
    """Generates the pages and adds them to the navigation, behind the recipes."""
    config.site_name = f"{config.site_name} {__version__}"
    config.copyright = f"keras_transformer {__version__}, Apache-2.0"
    config.extra["made"] = {"benchmarks.md": benchmarks_page.page()}
    if "MIKE_DOCS_VERSION" in os.environ:  # One of several versions, among which a menu chooses.
        config.extra["version"] = {"provider": "mike"}
    generated = []
    for title, make in (
        ("Examples", example_pages),
        ("Attention", attention_pages),
        ("Positions", position_pages),
        ("Models", model_pages),
        ("Catalog", table_pages),
        ("Reference", reference_pages),
    ):
        pages, navigation = make()
        config.extra["made"] |= pages
        generated.append({title: navigation})
    config.nav[_RECIPES:_RECIPES] = generated
    return config


def on_files(files, config):
    """Adds the generated pages, which replace pages of the same name."""
    for path, content in config.extra.pop("made").items():
        if before := files.get_file_from_path(path):
            files.remove(before)
        file = File.generated(config, path, content=content, inclusion=InclusionLevel.INCLUDED)
        # Generated files have no edit link.
        file.edit_uri = None
        files.append(file)
    return files


def on_page_markdown(markdown, page, config, files):
    """Converts the formulas of a page to MathML, which browsers render natively, and ranks it for the search."""
    page.meta["search"] = {"boost": ranking.boost(page.file.src_uri)}
    return formulas.in_mathml(markdown)


def on_page_content(html, page, config, files):
    """Shows bars as bars: GitHub wants `\\|` for a bar in the code of a table, Python-Markdown keeps the backslash."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)


def _link_sources():
    """Links the package as installed: its subpackages, and `export`, which is next to it in a checkout."""
    package = SOURCES / "keras_transformer"
    shutil.rmtree(SOURCES, ignore_errors=True)
    package.mkdir(parents=True)
    for path in [*(ROOT / "keras_transformer").iterdir(), ROOT / "export"]:
        if path.name != "__pycache__":
            (package / path.name).symlink_to(path)
