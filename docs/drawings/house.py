"""Draws docs/house.svg, the packages on floors, from their imports: `python docs/drawings/house.py`.

Floors are named here; a package that no floor names stands on that of the highest package that it imports. An import that
leads up is an error, and nothing is drawn.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from svg import FAINT, GOOD, LINE, Drawing

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "house.svg"
WIDTH, FLOOR, LEFT = 760, 62, 156
# From the ground up: what a floor is for, and its packages.
FLOORS = {
    "Tools": ("utils", "backend", "layers"),
    "Attention": ("positions", "attention"),
    "Blocks": ("feedforward", "recurrence", "blocks"),
    "Inputs": ("text", "vision", "audio"),
    "Models": ("diffusion", "models"),
    "Tasks": ("generation", "tasks", "data"),
    "Training": ("plots", "quantization", "training"),
    "Exchange": ("checkpoints", "planning", "retrieval"),
    "Files": ("export",),
}


def packages() -> dict[str, Path]:
    """Returns a dict of each package of the library, and `export`, to its folder."""
    found = {path.parent.name: path.parent for path in sorted((ROOT / "keras_transformer").glob("*/__init__.py"))}
    return found | {"export": ROOT / "export"}


def imported(folder: Path) -> set[str]:
    """Returns the names in `keras_transformer` that the files of a folder import; not those for type checkers alone."""
    modules = {name for path in folder.rglob("*.py") for name in _modules(ast.parse(path.read_text()))}
    parts = (module.split(".") for module in modules)
    return {each[1] for each in parts if each[0] == "keras_transformer" and len(each) > 1} - {folder.name}


def _modules(tree: ast.AST) -> Iterator[str]:
    unread = [tree]
    while unread:
        node = unread.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            unread += node.orelse
            continue
        unread += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.module == "keras_transformer":
            yield from (f"keras_transformer.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def placed(arrows: dict[str, set[str]], floors: dict[str, tuple[str, ...]]) -> dict[str, int]:
    """Returns a dict of package to its floor, 0 for the ground.

    Args:
        arrows: dict of package to the names that it imports.
        floors: dict of title to packages, from the ground up.

    Raises:
        ValueError: a package imports one of a higher floor.

    >>> placed({"a": set(), "b": {"a"}, "c": {"b"}}, {"ground": ("a",), "first": ("b",)})
    {'a': 0, 'b': 1, 'c': 1}
    """
    found = {name: level for level, names in enumerate(floors.values()) for name in names}

    def floor(name: str) -> int:
        if name not in found:
            found[name] = max((floor(below) for below in arrows[name] if below in arrows), default=0)
        return found[name]

    for name, belows in arrows.items():
        for below in belows & set(arrows):
            if floor(below) > floor(name):
                raise ValueError(f"{name} imports {below}, which stands above it")
    return {name: floor(name) for name in arrows}


def main() -> None:
    levels = placed({name: imported(folder) for name, folder in packages().items()}, FLOORS)
    height = len(FLOORS) * FLOOR + 56
    drawing = Drawing(WIDTH, height, "The packages of keras_transformer on floors; each imports those below it only.")
    for level, title in enumerate(FLOORS):
        y = height - 44 - (level + 1) * FLOOR
        drawing.text(20, y + 37, title, 19, weight="bold", anchor="start")
        _floor(drawing, y, [name for name in [*FLOORS[title], *levels] if levels[name] == level])
    drawing.text(WIDTH / 2, height - 16, "Each package imports packages of its own floor or below.", 17, FAINT)
    drawing.save(FILE)


def _floor(drawing: Drawing, y: float, names: list[str]) -> None:
    """Draws the packages of a floor side by side."""
    names = list(dict.fromkeys(names))
    room = (WIDTH - LEFT - 16) / len(names)
    for index, name in enumerate(names):
        x = round(LEFT + index * room, 1)
        drawing.box(x, y + 5, round(room - 10, 1), FLOOR - 10, GOOD if name == "export" else LINE)
        drawing.text(round(x + (room - 10) / 2, 1), y + 37, name, 18)


if __name__ == "__main__":
    main()
