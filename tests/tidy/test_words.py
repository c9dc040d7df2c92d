"""Users meet job, run, step and task: the words of the core stay out of help, messages, README and pages."""

import ast
import re
from collections.abc import Iterator

from typer.main import get_command

from interlock.cli.main import app
from interlock.plugins import STANDARD
from interlock.server.app import collect_operations
from interlock.server.openapi import build_openapi
from tests.conftest import ROOT
from tests.tidy.sources import PRODUCT, name_of, nodes_of, texts_of

CORE_WORD = re.compile(r"\b(unit|act|lane|reaction|plugin|law)s?\b", re.IGNORECASE)
VERB = re.compile(
    r"\b(may|must|can|to|not|who) act\b|\bacts (as|for|on)\b", re.IGNORECASE
)  # the verb, no row of a table
# Messages that only authors of plugins and owners of databases meet, who need the word.
FOR_AUTHORS = (
    "interlock/cli/app_loader.py", "interlock/core/plugin.py", "interlock/store/migrate.py",
    "interlock/store/plugin_tables.py",
)  # fmt: skip
# Pages for contributors and for owners of databases, whose tables have these words. All other pages are for users.
INSIDE = ("architecture.md", "benchmarks.md", "contributing.md", "database.md", "engine.md", "glossary.md", "plugins.md",
          "adr/", "documents/", "lifecycles/")  # fmt: skip
ALL_PAGES = ["README.md", *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md"))]
PAGES = [name for name in ALL_PAGES if not name.removeprefix("docs/").startswith(INSIDE)]


def breaks(text: str) -> bool:
    """Whether a text has a word of the core."""
    return bool(CORE_WORD.search(VERB.sub("", text)))


def help_texts(command: object, path: str = "interlock") -> Iterator[tuple[str, str]]:
    """Every help text of the command line, with the command that it belongs to."""
    for text in (getattr(command, "help", ""), getattr(command, "epilog", "")):
        yield path, text or ""
    for parameter in getattr(command, "params", ()):
        yield path, f"{getattr(parameter, 'help', '') or ''} {parameter.metavar or ''}"
    for name, child in getattr(command, "commands", {}).items():
        yield from help_texts(child, f"{path} {name}")


def messages() -> Iterator[tuple[str, str]]:
    """What errors say, and every sentence of the command line, of the web pages and of `why`.

    A word alone is a key of JSON or a column.
    """
    for path in PRODUCT:
        if name_of(path) in FOR_AUTHORS:
            continue
        if {"cli", "dashboard", "why"} & {*path.parts} or path.name == "cli.py":
            yield from ((name_of(path), text) for text in texts_of(path) if " " in text)
            continue
        raised = [node.exc for node in nodes_of(path) if isinstance(node, ast.Raise) and node.exc]
        for node in (inner for error in raised for inner in ast.walk(error)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield name_of(path), node.value


def pages() -> Iterator[tuple[str, str]]:
    """The lines of the README and of the pages for users, without what stands in code."""
    for name in PAGES:
        text = re.sub(r"```.*?```", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
        for line in text.splitlines():
            yield name, re.sub(r"`[^`]*`|\]\([^)]*\)", "", line)


def templates() -> Iterator[tuple[str, str]]:
    """What the templates of the web pages show, hints and labels included."""
    paths = sorted((ROOT / "interlock").rglob("*.html"))
    assert len(paths) > 20
    for path in paths:
        text = re.sub(r"{[{%#].*?[}%#]}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        hints = re.findall(r'(?:title|aria-label|placeholder|alt)="([^"]*)"', text)
        yield from ((name_of(path), line) for line in [*hints, *re.sub(r"<[^>]*>", "", text).splitlines()])


def api_texts() -> Iterator[tuple[str, str]]:
    """Summaries and descriptions of the API, without what stands in code.

    What takes a command or answers a query of the engine as it is has its words.
    """
    operations = [
        operation
        for operation in collect_operations(STANDARD)
        if not operation.path.startswith(("/v1/commands/", "/v1/views/"))
    ]
    assert len(operations) > 50
    yield from described(build_openapi(operations, STANDARD.lifecycles({})), "openapi")


def described(part: object, place: str) -> Iterator[tuple[str, str]]:
    """What a part of an OpenAPI text says in sentences, and where."""
    if isinstance(part, list):
        for item in part:
            yield from described(item, place)
    elif isinstance(part, dict):
        for key, value in part.items():
            if key in ("summary", "description") and isinstance(value, str):
                yield place, re.sub(r"`[^`]*`", "", value)
            else:
                yield from described(value, f"{place}/{key}")


def listed(texts: Iterator[tuple[str, str]]) -> list[str]:
    """The texts that have a word of the core, and where they stand."""
    return [f"{place}: {text}" for place, text in texts if breaks(text)]


def test_help_says_job_run_step_and_task() -> None:
    assert listed(help_texts(get_command(app))) == []


def test_messages_say_job_run_step_and_task() -> None:
    assert listed(messages()) == []


def test_the_web_pages_say_job_run_step_and_task() -> None:
    assert listed(templates()) == []


def test_summaries_and_descriptions_of_the_api_say_job_run_step_and_task() -> None:
    assert listed(api_texts()) == []


def test_the_readme_and_the_pages_for_users_say_so_too() -> None:
    assert listed(pages()) == []


def test_a_word_of_the_core_is_known_from_a_verb() -> None:
    assert breaks("there is no unit 'x'")
    assert breaks("21 laws asked")
    assert not breaks("who may act for a tenant")
    assert not breaks("a community of lawyers")
