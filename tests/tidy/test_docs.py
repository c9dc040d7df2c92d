"""The docs lead somewhere: links resolve, commands exist, decisions are numbered."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import fields

from typer.main import get_command
from typer.testing import CliRunner

from interlock.cli.main import app
from interlock.core.engine import VERBS
from interlock.core.plugin import Plugin
from interlock.kernel import commands
from interlock.lifecycles import loader
from interlock.plugins import STANDARD
from interlock.server.app import collect_operations
from interlock.store.hooks import Hooks
from tests.conftest import ROOT, Run

PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
DIGESTS = {
    "000-agent-runs.md": "94b9f3845f8895fa",
    "001-approval-workflows.md": "519435344ba4768c",
    "002-distributed-jobs.md": "e44480244115400f",
    "003-workstreams.md": "9f3009b2c6861068",
    "004-ci-runs.md": "43a9c29da1541983",
}
OURS = [path for path in PAGES if "documents" not in path.parts]


def test_the_source_documents_are_as_they_were_given() -> None:
    """They are the authority: nobody edits them, and no formatter either."""
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        for path in sorted((ROOT / "docs" / "documents").glob("00*.md"))
    }
    assert digests == DIGESTS


def test_links_lead_to_files() -> None:
    for path in OURS:
        text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (path.parent / target).exists(), f"{path.name}: {target}"


def anchor_of(heading: str) -> str:
    """The anchor that a code host gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-")


def test_links_lead_to_headings() -> None:
    texts = {path: re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL) for path in PAGES}
    anchors = {
        path: {anchor_of(heading) for heading in re.findall(r"^#+ (.*)$", text, re.M)} for path, text in texts.items()
    }
    lost = []
    for path in OURS:
        for page, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)]+)\)", texts[path]):
            target = (path.parent / page).resolve() if page else path
            if target in anchors and anchor not in anchors[target]:
                lost.append(f"{path.name}: {page}#{anchor}")
    assert lost == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, frontier = set(), [ROOT / "README.md"]
    while frontier:
        page = frontier.pop()
        if page in reached or page.suffix != ".md" or not page.exists():
            continue
        reached.add(page)
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        frontier += [(page.parent / target).resolve() for target in targets]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in reached] == []


def list_commands(command: object, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command that can be run, by its words; aliases are left out."""
    for name, child in getattr(command, "commands", {}).items():
        if not child.hidden:
            below = [*list_commands(child, (*words, name))]
            yield from below or [(*words, name)]


def test_every_command_is_on_the_page_of_the_command_line() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    known = [" ".join(words) for words in list_commands(get_command(app))]
    assert len(known) > 80
    assert [words for words in known if not re.search(rf"\binterlock {words}\b", page)] == []


def test_commands_in_the_docs_exist(interlock: Run) -> None:
    """`interlock a b …` in a page must at least be a command that has help. One of them is asked for in earnest."""
    said: set[tuple[str, ...]] = set()
    groups = {words[0] for words in list_commands(get_command(app)) if len(words) > 1} | {"dead"}
    groups -= {"worker"}  # its second word may be an app
    for path in OURS:
        for line in re.findall(
            r"(?:^|`)(?:\$ )?(?:\.venv/bin/)?interlock ([a-z][a-z -]*)", path.read_text(encoding="utf-8"), re.M
        ):
            words = line.split()
            said.add(tuple(words[:2]) if words[0] in groups else tuple(words[:1]))
    assert ("lifecycle", "show") in said
    for words in said:
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0, words
    assert interlock("lifecycle", "show", "--help").returncode == 0


def test_paths_of_the_api_in_the_docs_exist() -> None:
    """A word in capitals, and a scope or view in braces, stand for one of several."""
    known = [re.compile(re.sub(r"{\w+}", "[^/]+", operation.path)) for operation in collect_operations(STANDARD)]
    for path in (page for page in OURS if page.name != "CHANGELOG.md"):
        named = set(re.findall(r"/v1/[\w/{}.-]*[\w}]", path.read_text(encoding="utf-8")))
        exact = {each for each in named if not re.search(r"/[A-Z]+\b|{(?:view|scope)}$", each)}
        assert [each for each in sorted(exact) if not any(way.fullmatch(each) for way in known)] == [], path.name


def test_decisions_are_numbered_without_a_gap() -> None:
    names = sorted(path.name for path in (ROOT / "docs" / "adr").glob("*.md") if path.name != "README.md")
    assert names
    assert [int(name[:3]) for name in names] == list(range(1, len(names) + 1))


def test_every_key_of_a_lifecycle_file_is_documented() -> None:
    text = (ROOT / "docs" / "lifecycle-files.md").read_text(encoding="utf-8")
    tables = (loader.FileTable, loader.StateTable, loader.MoveTable, loader.OptionsTable, loader.BudgetTable,
              loader.BackoffTable, loader.LeaseTable)  # fmt: skip
    keys = [key for table in tables for key in table.__struct_fields__]
    assert [key for key in keys if f"`{key}`" not in text and f"[{key}]" not in text] == []


def test_every_part_and_hook_of_a_plugin_is_documented() -> None:
    text = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    names = [*(field.name for field in fields(Plugin)), *(name for name in Hooks._fields if name != "options")]
    assert len(names) > 40
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_command_has_a_verb_and_a_line_in_the_docs() -> None:
    named = list(vars(commands).values())
    kinds = {kind for kind in named if isinstance(kind, type) and issubclass(kind, commands.Command)}
    kinds.discard(commands.Command)
    assert kinds == {**VERBS, **STANDARD.commands}.keys()
    lines = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "engine.md").read_text(encoding="utf-8"), re.M)
    assert {kind.__name__ for kind in kinds} <= set(lines)
