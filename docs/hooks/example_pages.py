"""A page for each example: what its docstring says, and its source."""

import ast

from markup import ROOT, linked, table

EXAMPLES = ROOT / "examples"


def example_pages():
    """Returns (path to content, navigation)."""
    pages, rows, entries = {}, [], []
    for path in sorted(EXAMPLES.glob("*.py")):
        source = path.read_text()
        summary, _, rest = ast.get_docstring(ast.parse(source)).partition("\n")
        pages[f"examples/{path.stem}.md"] = _page(path, summary, rest.strip("\n"), source)
        rows.append({"example": f"[`{path.name}`]({path.stem}.md)", "what it does": summary})
        entries.append({path.stem: f"examples/{path.stem}.md"})
    pages["examples/web.md"] = (EXAMPLES / "web" / "README.md").read_text()
    rows.append(
        {"example": "[`web/`](web.md)", "what it does": "Runs two bundles in a page, without a server behind it."}
    )
    pages["examples/index.md"] = f"# Examples\n\n{_INTRODUCTION}\n\n{table(rows)}\n"
    return pages, ["examples/index.md", *entries, {"web": "examples/web.md"}]


_INTRODUCTION = """One script for each task. Each runs as it stands, and `--help` lists its options. Those that train do so
with `model.fit`, export what they have trained, and say how well it does."""


def _page(path, summary, rest, source):
    hidden = f'<details markdown="1"><summary>The script</summary>\n\n```python\n{source}```\n\n</details>'
    return "\n\n".join([f"# {path.name}", linked(summary), linked(rest), hidden])
