"""Users meet job, run, step and task: the words of the core stay out of help, messages, README and pages.

What still breaks the rule is listed by where it stands, and how often. The lists only shrink: a number that is too
high fails its test too.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator

from typer.main import get_command

from interlock.cli.main import app
from tests.conftest import ROOT
from tests.tidy.sources import PRODUCT, name_of, nodes_of, texts_of

CORE_WORD = re.compile(r"\b(unit|act|lane|reaction|plugin|law)s?\b", re.IGNORECASE)
VERB = re.compile(
    r"\b(may|must|can|to|not|who) act\b|\bacts (as|for|on)\b", re.IGNORECASE
)  # the verb, no row of a table
# Messages that only authors of plugins and owners of databases meet, who need the word.
FOR_AUTHORS = ("interlock/core/plugin.py", "interlock/store/plugin_tables.py", "interlock/store/migrate.py")
PAGES = ("README.md", "docs/cli.md", "docs/inbox.md", "docs/lifecycle-files.md", "docs/schedules.md", "docs/server.md",
         "docs/model-check.md", "docs/reliability.md", "docs/security.md", "docs/testing.md", "docs/tutorial.md",
         "docs/validate-log.md", "docs/workers.md", "docs/workflows.md")  # fmt: skip

STILL_IN_HELP: dict[str, int] = {}
STILL_IN_MESSAGES: dict[str, int] = {
    "interlock/cli/app_loader.py": 3,
    "interlock/core/archive.py": 3,
    "interlock/core/decide.py": 1,
    "interlock/core/effective_policy.py": 1,
    "interlock/core/holder_verbs.py": 1,
    "interlock/core/submit.py": 4,
    "interlock/core/tenants.py": 1,
    "interlock/kernel/workflow_graph.py": 1,
    "interlock/plugins/approvals/votes.py": 1,
    "interlock/plugins/workflows/signals.py": 1,
    "interlock/plugins/workflows/templates.py": 1,
    "interlock/store/queries/lists.py": 1,
    "interlock/store/queries/trees.py": 1,
    "interlock/store/queries/views.py": 2,
    "interlock/store/unit_of_work.py": 2,
}
STILL_IN_PAGES: dict[str, int] = {
    "docs/server.md": 16,
}


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
    """What errors say, and every sentence of the command line; a word alone is a key of JSON or a column."""
    for path in PRODUCT:
        if name_of(path) in FOR_AUTHORS:
            continue
        if "cli" in path.parts:
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


def compare(texts: Iterator[tuple[str, str]], still: dict[str, int]) -> None:
    """No text has a word of the core but those that are listed, and none is listed that is gone."""
    broken = [(place, text.strip()) for place, text in texts if breaks(text)]
    counts = Counter(place for place, _ in broken)
    new = [f"{place}: {text}" for place, text in broken if counts[place] > still.get(place, 0)]
    assert new == [], "users meet job, run, step and task; the rest is the core's"
    assert {place: count for place, count in still.items() if counts[place] < count} == {}, (
        "fewer are left: lower these"
    )


def test_help_says_job_run_step_and_task() -> None:
    compare(help_texts(get_command(app)), STILL_IN_HELP)


def test_messages_say_job_run_step_and_task() -> None:
    compare(messages(), STILL_IN_MESSAGES)


def test_the_readme_and_the_pages_for_users_say_so_too() -> None:
    compare(pages(), STILL_IN_PAGES)


def test_a_word_of_the_core_is_known_from_a_verb() -> None:
    assert breaks("there is no unit 'x'")
    assert breaks("21 laws asked")
    assert not breaks("who may act for a tenant")
    assert not breaks("a community of lawyers")
