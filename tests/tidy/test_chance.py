"""Time and chance come in through adapters alone: everything else is the same whenever it is done again."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT
from tests.tidy.sources import PRODUCT, name_of, nodes_of

CLOCKS = {"time", "random", "uuid", "secrets"}
SLEEPS = {("asyncio", "sleep"), ("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("os", "urandom")}
# The adapters: what each may use, and why it is one.
ADAPTERS = {
    "cli": ({"time", "random", "sleep"}, "it speaks to people, who live in time"),
    "blobs/folder.py": ({"time", "secrets"}, "the age of files, and names of files that have no digest yet"),
    "blobs/memory.py": ({"time"}, "the age of blobs, as a folder has it"),
    "client/tree_logs.py": ({"time"}, "it waits for the next bytes of logs"),
    "client/evidence.py": ({"time"}, "it waits for the next bytes of a log"),
    "plugins/evidence/log_feed.py": ({"sleep"}, "it waits for the next bytes of logs"),
    "plugins/state_files/exporter.py": ({"time"}, "it waits for events, and writes documents once a second"),
    "store/sqlite/driver.py": ({"time"}, "the store tells the time; a test gives it another clock"),
    "store/sqlite/connection.py": ({"time"}, "it stops a question that takes too long"),
    "store/sqlite/wakeups.py": ({"time"}, "it looks at a file from time to time"),
    "store/postgres/connection.py": ({"time"}, "it waits for the database"),
    "store/postgres/wakeups.py": ({"time"}, "it measures how long a commit that tells takes; tests hand a clock in"),
    "store/commit_proof.py": ({"time"}, "it waits for the end of a transaction"),
    "store/observer.py": ({"time"}, "it says how long things took, to whoever observes"),
    "store/migrate.py": ({"secrets"}, "the name of a new store"),
    "store/restore.py": ({"secrets"}, "the name of a store that was restored"),
    "core/engine.py": ({"time"}, "it says of a question that was stopped whether it was too slow"),
    "core/plugin.py": ({"random"}, "the stories of a plugin get the chance of a simulation"),
    "client/jobs.py": ({"time"}, "it waits for a job"),
    "client/pauses.py": ({"now"}, "a time of day is the next one by the clock of whoever says it"),
    "client/keys.py": ({"secrets"}, "the secret of a key"),
    "client/long_poll.py": ({"secrets", "sleep"}, "it waits for a server, under a name of its own"),
    "client/http_transport.py": ({"sleep"}, "it waits for a server"),
    "client/feed.py": ({"time", "sleep"}, "it waits for events"),
    "client/remote_feed.py": ({"sleep"}, "it waits for a server"),
    "client/remote.py": ({"secrets"}, "the names under which commands are done once"),
    "server/operations.py": ({"secrets"}, "the name of a request"),
    "server/event_feed.py": ({"sleep"}, "it waits for events"),
    "dashboard/sessions.py": ({"time", "secrets"}, "how long a session lasts, and its nonce"),
    "dashboard/pages.py": ({"secrets"}, "the name under which a form is sent once"),
    "dashboard/render.py": ({"now"}, "how long ago something was"),
    "dashboard/sharing.py": ({"sleep"}, "pages are made at common instants"),
    "worker/waiting.py": ({"sleep"}, "it lets other coroutines run; no time passes"),
    "worker/ci_attempt.py": ({"time"}, "it waits for the word of the engine that its time is over"),
    "worker/ci_planning.py": ({"time"}, "a result that is older than seven days does not count"),
    "worker/ci_steps.py": ({"time"}, "its clock stops steps"),
    "worker/loop.py": ({"secrets"}, "tokens are handed in"),
    "worker/ticker.py": ({"sleep"}, "it waits on its loop"),
    "worker/retrying_client.py": ({"sleep"}, "it waits on its loop"),
    "worker/leases.py": ({"time"}, "its clock goes on while the process is stopped; another one is handed in"),
    "worker/watchdog.py": ({"time"}, "it watches from a thread of its own"),
    "git/command.py": ({"time"}, "it waits for git, which takes its time"),
    "git/repository.py": ({"time"}, "it waits until another process has made its worktree"),
    "process": ({"time"}, "it waits for commands, which take their time"),
    "worker/process.py": ({"sleep"}, "it waits for processes"),
    "worker/demo_tasks.py": ({"time", "sleep"}, "handlers that take a while"),
    "testing/simulation": ({"random", "sleep"}, "chance from a seed, on a loop whose time is virtual"),
}


def used(path: Path) -> Iterator[str]:
    """The clocks and sources of chance that a file uses."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (imported.name for imported in node.names if imported.name in CLOCKS)
        elif isinstance(node, ast.ImportFrom) and node.module in CLOCKS:
            yield str(node.module)
        elif isinstance(node, ast.Attribute) and (getattr(node.value, "id", ""), node.attr) in SLEEPS:
            yield node.attr


def allowed(path: Path) -> set[str]:
    name = path.relative_to(ROOT / "interlock").as_posix()
    return {
        word
        for place, (words, _) in ADAPTERS.items()
        if name == place or name.startswith(f"{place}/")
        for word in words
    }


def test_time_and_chance_come_through_adapters() -> None:
    assert {name_of(path): more for path in PRODUCT if (more := set(used(path)) - allowed(path))} == {}


def test_chance_in_a_simulation_comes_from_its_seed() -> None:
    """`random.Random(seed)` is the only word of that module, and it is never called without a seed."""
    for path in sorted((ROOT / "interlock/testing/simulation").glob("*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
                assert node.attr == "Random", path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "Random":
                assert node.args, path


def test_no_adapter_is_listed_in_vain() -> None:
    for place, (words, why) in ADAPTERS.items():
        folder = ROOT / "interlock" / place
        files = [path for path in PRODUCT if path == folder or folder in path.parents]
        assert why
        assert words == {word for path in files for word in used(path)}, place
