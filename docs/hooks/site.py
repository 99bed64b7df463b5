"""MkDocs hook that adds the pages generated from the dicts, the docstrings and the contract cases."""

import os
import pathlib
import shutil

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["COLUMNS"] = "100"  # Width of the help texts of commands.

import formulas
from example_pages import example_pages
from mkdocs.structure.files import File, InclusionLevel
from part_pages import attention_pages, position_pages
from reference_pages import reference_pages
from table_pages import model_pages, table_pages

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = ROOT / "build" / "docs_sources"


def on_startup(command, dirty):
    """Links the sources for mkdocstrings, which checks for the folder before hooks are configured."""
    _link_sources()


def on_config(config):
    """Generates the pages and adds them to the navigation."""
    config.extra["made"] = {}
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
        config.nav.append({title: navigation})
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
    """Converts the formulas of a page to MathML, which browsers render natively."""
    return formulas.in_mathml(markdown)


def _link_sources():
    """Links the package as installed: its subpackages, and `export`, which is next to it in a checkout."""
    package = SOURCES / "keras_transformer"
    shutil.rmtree(SOURCES, ignore_errors=True)
    package.mkdir(parents=True)
    for path in [*(ROOT / "keras_transformer").iterdir(), ROOT / "export"]:
        if path.name != "__pycache__":
            (package / path.name).symlink_to(path)
