"""The hook of MkDocs that adds the pages of single parts, made from the dicts, the docstrings and the contract cases."""

import os
import pathlib
import shutil

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ["COLUMNS"] = "100"  # Of the help of commands.

import formulas
from example_pages import example_pages
from mkdocs.structure.files import File, InclusionLevel
from part_pages import attention_pages, position_pages
from reference_pages import reference_pages
from table_pages import model_pages, table_pages

ROOT = pathlib.Path(__file__).parents[2]
SOURCES = ROOT / "build" / "docs_sources"


def on_startup(command, dirty):
    """Lays out the sources that mkdocstrings reads: it looks for their folder before hooks are configured."""
    _link_sources()


def on_config(config):
    """Makes the pages, and lists them in the navigation."""
    config.extra["made"] = {}
    for title, make in (
        ("Examples", example_pages),
        ("Attention", attention_pages),
        ("Positions", position_pages),
        ("Models", model_pages),
        ("Everything", table_pages),
        ("Reference", reference_pages),
    ):
        pages, navigation = make()
        config.extra["made"] |= pages
        config.nav.append({title: navigation})
    return config


def on_files(files, config):
    """Pages of the same name replace those in the folder: they are made anew."""
    for path, content in config.extra.pop("made").items():
        if before := files.get_file_from_path(path):
            files.remove(before)
        file = File.generated(config, path, content=content, inclusion=InclusionLevel.INCLUDED)
        # Not to be edited.
        file.edit_uri = None
        files.append(file)
    return files


def on_page_markdown(markdown, page, config, files):
    """Formulas become MathML here: browsers draw it by themselves."""
    return formulas.in_mathml(markdown)


def _link_sources():
    """The package as it is when installed: links to its rooms, and to `export`, which lies beside it in a checkout."""
    package = SOURCES / "keras_transformer"
    shutil.rmtree(SOURCES, ignore_errors=True)
    package.mkdir(parents=True)
    for path in [*(ROOT / "keras_transformer").iterdir(), ROOT / "export"]:
        if path.name != "__pycache__":
            (package / path.name).symlink_to(path)
