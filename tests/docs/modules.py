"""The list of modules in docs/architecture.md, rendered from the docstrings. `python -m tests.docs.modules` writes it.

A module's line is the first paragraph of its docstring, so the list says what the code says.
"""

import ast
from pathlib import Path

from tests.conftest import ROOT

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- modules: written by `python -m tests.docs.modules` -->\n", "<!-- end of modules -->\n"
PACKAGE = ROOT / "interlock"
# From the top down: a package imports those below it, and never one above it.
LAYERS = (
    "cli", "testing", "dashboard", "server", "worker", "adapters", "client", "plugins", "audit", "core", "store", "lifecycles", "git",
    "process", "blobs", "kernel",
)  # fmt: skip


def list_modules() -> list[str]:
    """The path of every module below interlock/, as in `core/advance.py`. A package is named by its folder, as in `core/`."""
    paths = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))
    return [f"{path.parent}/" if path.name == "__init__.py" else str(path) for path in paths if len(path.parts) > 1]


def summarize(path: Path) -> str:
    """The first paragraph of a module's docstring on one line."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.partition("\n\n")[0].split()).replace("|", "\\|")


def render_modules() -> str:
    """One table per package, in the order of the layers."""
    lines: list[str] = []
    named = list_modules()
    for layer in LAYERS:
        lines += [f"### {layer}", "", summarize(PACKAGE / layer / "__init__.py"), ""]
        lines += ["| module | what it does |", "| --- | --- |"]
        for name in named:
            if name.startswith(f"{layer}/") and name != f"{layer}/":
                file = PACKAGE / name / "__init__.py" if name.endswith("/") else PACKAGE / name
                lines.append(f"| `{name}` | {summarize(file)} |")
        lines.append("")
    return "\n".join(lines)


def replace_between(text: str, begin: str, end: str, part: str) -> str:
    """The text with `part` between two lines that mark its place."""
    head, found, rest = text.partition(begin)
    assert found, f"{begin!r} is missing"
    _, found, tail = rest.partition(end)
    assert found, f"{end!r} is missing"
    return f"{head}{begin}\n{part}\n{end}{tail}"


def render_page() -> str:
    return replace_between(PAGE.read_text(encoding="utf-8"), BEGIN, END, render_modules())


if __name__ == "__main__":
    PAGE.write_text(render_page(), encoding="utf-8")
