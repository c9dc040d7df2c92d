"""Names stay plain: one name for one thing, no metaphors, no participles as values, public functions documented."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from typer.main import get_command

from interlock.cli.main import app
from interlock.core.engine import VERBS
from interlock.plugins import STANDARD
from tests.tidy.sources import BESIDE, PRODUCT, Function, functions_of, name_of, nodes_of, tree_of, words_of

MODULES_PER_FUNCTION_NAME = 3
# Metaphors, retired as any word of a name: a bell has no place in `bell_of` either. What replaced each stands beside it.
METAPHORS = {
    "bell": "wakeups", "ring": "wake-up", "rung": "woken", "ear": "subscription", "ears": "subscriptions",
    "deaf": "polling", "mouth": "sender", "desk": "request pipeline", "hall": "server state", "keyring": "auth",
    "letter": "dead letter", "letters": "dead letters", "vigil": "incremental laws", "witness": "commit proof",
    "seat": "slot", "passes": "API keys", "glimpse": "peek", "summon": "notify", "staff": "workers",
}  # fmt: skip
# Words that say nothing of what a value is, retired as whole names.
INSTEAD = "say what it is, in the words of docs/glossary.md"
RIDDLES = {
    "told",
    "said",
    "heard",
    "meant",
    "seen",
    "found",
    "asked",
    "one",
    "ones",
    "thing",
    "things",
    "life",
    "lives",
}


def listed(offenders: Iterator[tuple[Path, str]]) -> list[str]:
    """What breaks a rule, and where."""
    return sorted(f"{name_of(path)}: {name}" for path, name in offenders)


def top_level(kind: type, files: Iterable[Path] = PRODUCT) -> dict[str, list[Path]]:
    """The modules that define a name at their top level, by name."""
    modules: dict[str, list[Path]] = defaultdict(list)
    for path in files:
        for node in tree_of(path).body:
            if isinstance(node, kind):
                modules[node.name].append(path)
    return modules


@cache
def verbs() -> set[str]:
    """The names that commands have: `submit` is Submit's wherever it stands, and `show` is a word of the command line."""
    kinds = {re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() for kind in {**VERBS, **STANDARD.commands}}
    return kinds | set(spoken(get_command(app)))


def spoken(command: object) -> Iterator[str]:
    """Every word that stands for a command on the command line."""
    for name, child in getattr(command, "commands", {}).items():
        yield name.replace("-", "_")
        yield from spoken(child)


def shared_functions() -> Iterator[tuple[Path, str]]:
    """Functions whose name more than three modules use, for more than one thing."""
    for name, paths in top_level(Function).items():
        if len(set(paths)) > MODULES_PER_FUNCTION_NAME and name not in verbs():
            yield from ((path, name) for path in paths)


def shared_classes() -> Iterator[tuple[Path, str]]:
    """Classes whose name is defined more than once."""
    modules: dict[str, list[Path]] = defaultdict(list)
    for path in PRODUCT:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(path)
    for name, paths in modules.items():
        if len(paths) > 1:
            yield from ((path, name) for path in paths)


def names_of(path: Path) -> Iterator[str]:
    """Every name that a file gives: to modules, classes, functions, parameters, variables, attributes and imports."""
    yield path.stem
    for node in nodes_of(path):
        if isinstance(node, ast.ClassDef | Function):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def is_retired(name: str) -> bool:
    """Whether a name is a riddle, or has a metaphor among its words; a dead letter is what the field calls it."""
    words = words_of(name)
    bare = [word for at, word in enumerate(words) if not (word.startswith("letter") and words[at - 1 : at] == ["dead"])]
    return "_".join(words) in RIDDLES or any(word in METAPHORS for word in bare)


def retired_names() -> Iterator[tuple[Path, str]]:
    """Names that are retired."""
    return ((path, name) for path in [*PRODUCT, *BESIDE] for name in set(names_of(path)) if is_retired(name))


# Words of the language in which programs speak to us: `resources=[interlock.shared("disk")]`, `with staged(app)`, and
# tasks of the demo. What we ship, and the same with shorter times, is named by what it is.
EXEMPT = {"shared", "counted", "rated", "staged", "refused", "broken", "shipped", "hurried"}
PARTICIPLES = {"shown", "spoken", "given", "kept", "made", "done", "known", "taken", "paid", "lent", "begun", "meant",
               "found", "seen", "told", "said", "sent", "written", "broken", "rebuilt", "held", "left", "born"}  # fmt: skip
VERBS_IN_ED = {"succeed", "need", "feed", "shed", "speed", "embed", "exceed", "proceed", "seed"}
RULES = ("kernel/lint.py", "audit/laws/rows.py")  # there a function is a rule, and its name the sentence that holds


def participles() -> Iterator[tuple[Path, str]]:
    """Functions that begin with the state in which something is, and not with what they do: `encoded` for `encode`."""
    for name, paths in top_level(Function, [*PRODUCT, *BESIDE]).items():
        first = name.strip("_").partition("_")[0]
        if name not in EXEMPT and first not in VERBS_IN_ED and (first.endswith("ed") or first in PARTICIPLES):
            yield from ((path, name) for path in paths if not name_of(path).endswith(RULES))


def undocumented() -> Iterator[tuple[Path, str]]:
    """Functions and classes at the top of a module that say nothing of what they do."""
    for path in PRODUCT:
        named = [node for node in tree_of(path).body if isinstance(node, Function | ast.ClassDef)]
        last = {node.name: node for node in named}  # of an overloaded function the one that runs
        yield from (
            (path, name) for name, node in last.items() if not name.startswith("_") and not ast.get_docstring(node)
        )


def raised_in_prose() -> Iterator[tuple[Path, str]]:
    """Functions whose docstring names an exception in a sentence, where a section `Raises:` would show it to tools."""
    for path in PRODUCT:
        for function in functions_of(path):
            text = " ".join((ast.get_docstring(function) or "").split())
            if re.search(r"\S Raises [A-Z]", text):  # one that says nothing else has no need of a section
                yield path, function.name


def test_no_function_name_stands_for_many_things() -> None:
    assert listed(shared_functions()) == [], INSTEAD


def test_no_class_name_is_given_twice() -> None:
    assert listed(shared_classes()) == [], INSTEAD


def test_no_retired_word_is_a_name() -> None:
    assert listed(retired_names()) == [], INSTEAD


def test_functions_begin_with_a_verb_and_not_with_a_participle() -> None:
    assert listed(participles()) == [], "begin with a verb, as in encode or find_lost"


def test_public_functions_and_classes_are_documented() -> None:
    assert listed(undocumented()) == [], "give it a docstring that says what it does"


def test_a_docstring_names_exceptions_in_a_section_of_their_own() -> None:
    assert listed(raised_in_prose()) == [], "write it as Raises: with a line for each exception"


def test_the_rules_know_a_retired_name() -> None:
    assert [name for name in ("ring_of", "Bell", "told", "one", "DeadLetter", "dead_letters", "letters") if is_retired(name)] == [
        "ring_of", "Bell", "told", "one", "letters",
    ]  # fmt: skip
    assert {"submit", "fire_schedule", "show"} <= verbs()
