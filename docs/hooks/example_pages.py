"""Generates a page for each example, with its docstring and its source."""

import ast

from markup import ROOT, linked, table

EXAMPLES = ROOT / "examples"


def example_pages():
    """Returns a dict of path to content, and the navigation."""
    pages, rows, entries = {}, [], []
    for path in sorted(EXAMPLES.glob("*.py")):
        source = path.read_text()
        summary, _, rest = ast.get_docstring(ast.parse(source)).partition("\n")
        pages[f"examples/{path.stem}.md"] = _page(path, summary, rest.strip("\n"), source)
        rows.append({"example": f"[`{path.name}`]({path.stem}.md)", "description": summary})
        entries.append({path.stem: f"examples/{path.stem}.md"})
    for folder, description in _FOLDERS.items():
        pages[f"examples/{folder}.md"] = (EXAMPLES / folder / "README.md").read_text()
        rows.append({"example": f"[`{folder}/`]({folder}.md)", "description": description})
        entries.append({folder: f"examples/{folder}.md"})
    pages["examples/index.md"] = f"# Examples\n\n{_INTRODUCTION}\n\n{table(rows)}\n"
    return pages, ["examples/index.md", *entries]


_FOLDERS = {
    "web": "Runs two bundles in a web page, without an inference server.",
    "deploy": "Runs a classifier and a language model in C++, Node, a web page, and apps for Android, iOS and React Native.",
}
_INTRODUCTION = """One script per task. `--help` lists the options of a script. Training scripts use `model.fit`, export the
trained model and print its scores."""


def _page(path, summary, rest, source):
    hidden = f'<details markdown="1"><summary>The script</summary>\n\n```python\n{source}```\n\n</details>'
    return "\n\n".join([f"# {path.name}", linked(summary), linked(rest), hidden])
