"""The map is true: the architecture page names every module, contributing every package and suite, README the last figures."""

import ast
import re
from pathlib import Path

import pytest

from interlock.audit.model.properties import PROMISES
from tests.conftest import ROOT
from tests.docs import figures, modules

DOCS = ROOT / "docs"
ENTRIES_MAX = 20  # of the glossary
READING_MAX = 1_200  # lines
USERS_WORDS = (
    "task", "job", "run", "step", "attempt", "lifecycle", "transition", "event", "queue", "worker", "lease",
    "fencing token", "capability", "approval", "inbox", "dead letter", "idempotency key",
)  # fmt: skip
MODULE = re.compile(
    r"\b(?:interlock/)?((?:cli|testing|server|worker|client|plugins|audit|core|engine|store|lifecycles|kernel)/[\w/]+\.py)\b"
)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def test_the_architecture_page_names_every_module() -> None:
    page = read("docs/architecture.md")
    missing = [name for name in modules.list_modules() if f"`{name}`" not in page and f"### {name[:-1]}\n" not in page]
    assert missing == [], "run `python -m tests.docs.modules`"


def test_its_list_of_modules_is_what_the_docstrings_say() -> None:
    assert modules.render_page() == read("docs/architecture.md"), "run `python -m tests.docs.modules`"


def test_no_page_names_a_module_that_is_gone() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    ours = [page for page in pages if "documents" not in page.parts and page.name != "proof.md"]
    gone = {
        (str(page.relative_to(ROOT)), name)
        for page in ours
        for name in MODULE.findall(re.sub(r"tests/\S+", "", page.read_text(encoding="utf-8")))
        if not (ROOT / "interlock" / name).exists()
    }
    assert sorted(gone) == []


def folders_in(tree: str, below: str) -> list[str]:
    """The folders that a drawn tree lists below one of its folders."""
    part = re.search(rf"^{below}/.*\n((?:  .*\n)*)", tree, re.MULTILINE)
    assert part, f"the tree does not list {below}/"
    return re.findall(r"^  (\w+)/", part[1], re.MULTILINE)


@pytest.mark.parametrize("below", ["interlock", "tests", "docs"])
def test_the_tree_of_contributing_is_the_tree(below: str) -> None:
    tree = read("docs/contributing.md").partition("```text\n")[2].partition("```")[0]
    there = sorted(path.name for path in (ROOT / below).iterdir() if path.is_dir() and path.name != "__pycache__")
    assert sorted(folders_in(tree, below)) == there


def test_contributing_says_where_a_test_goes() -> None:
    """Every package and every suite of `make test` has its row."""
    part = read("docs/contributing.md").partition("## Where does my test go?")[2].partition("\n## ")[0]
    suites = {path.name for path in (ROOT / "tests").iterdir() if list(path.glob("test_*.py"))}
    assert sorted(suites - set(re.findall(r"`tests/(\w+)", part))) == []
    assert [layer for layer in modules.LAYERS if f"`{layer}/" not in part] == []


def test_the_reading_order_is_short() -> None:
    """Whoever wants to follow a job reads at most 1,200 lines, and the page says how many."""
    text = read("docs/contributing.md").partition("## Reading order")[2].partition("\n## ")[0]
    files = re.findall(r"^\d\. `([\w/.]+)`", text, re.MULTILINE)
    assert len(files) == 6
    lines = {file: len((ROOT / "interlock" / file).read_text(encoding="utf-8").splitlines()) for file in files}
    assert sum(lines.values()) <= READING_MAX, lines
    assert f"{READING_MAX:,} lines" in text


def test_the_glossary_is_short_and_has_the_words_of_users() -> None:
    entries = [entry.lower() for entry in re.findall(r"^\| \*\*([^*]+)\*\* \|", read("docs/glossary.md"), re.MULTILINE)]
    assert len(entries) <= ENTRIES_MAX
    assert [word for word in USERS_WORDS if word not in entries] == []


def test_the_page_about_the_model_check_lists_every_promise() -> None:
    page = read("docs/model-check.md")
    assert [name for name, text in PROMISES.items() if f"| `{name}` | {text} |" not in page] == []


def test_the_figures_of_the_readme_are_those_of_the_last_bench_and_proof() -> None:
    assert figures.render_page() == read("README.md"), "run `python -m tests.docs.figures`"


def test_another_figure_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {name: figures.read(name) for name in ("benchmarks.md", "proof.md", "reliability.md")}
    pages["benchmarks.md"] = pages["benchmarks.md"].replace("9,640 ", "9,641 ")
    monkeypatch.setattr(figures, "read", pages.__getitem__)
    assert "9,641" in figures.render_figures()


@pytest.mark.parametrize("path", sorted((DOCS / "adr").glob("0*.md")), ids=lambda path: path.stem[:3])
def test_a_decision_has_a_date_and_names_what_it_governs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(rf"# {path.stem[:3]}: \S", text)
    head = re.search(r"^Date: \d{4}-\d\d-\d\d\. Governs: (`[^\n]+)\.$", text, re.MULTILINE)
    assert head
    governed = [name for name in re.findall(r"`([^`]+)`", head[1]) if "/" in name]
    assert [name for name in governed if not any([*modules.PACKAGE.glob(name), *ROOT.glob(name)])] == []
    index = (DOCS / "adr" / "README.md").read_text(encoding="utf-8")
    title = text.splitlines()[0].partition(": ")[2]
    assert f"[{title}]({path.name})" in index


def names_in(path: Path) -> set[str]:
    """The functions, classes and methods (as in `Worker.claim`) that a module defines."""
    names: set[str] = set()
    if not path.exists():
        return names
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


def test_every_name_in_the_map_is_defined_where_it_says() -> None:
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", read("docs/architecture.md"))
    assert named
    gone = [(file, name) for file, name in named if name not in names_in(ROOT / "interlock" / file)]
    assert gone == []
