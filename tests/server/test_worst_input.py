"""A request may hold the worst text for whatever reads it: that takes time as its length does, and stops nobody else."""

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from interlock.kernel.commands import DefineSchedule, Submit, Work
from interlock.kernel.errors import InterlockError
from interlock.server import request_pipeline, request_schemas
from interlock.server.errors import ApiError
from tests.server.serving import serving
from tests.server.stage import Stage

SOURCE = Path(request_pipeline.__file__).parents[1]
SIZE = 1 << 20
HEADERS = {"Content-Type": "application/json"}
OPEN_STRING = b'{"task": "a", "input": "' + b'\\"[' * 20_000
CHILD = """
import sys
from interlock.kernel import parameters
from interlock.core import api_keys as key_verbs, validation
from interlock.plugins.schedules import cron
from interlock.plugins.repositories import options as repositories
from interlock.plugins.shell import options as shell
from interlock.kernel import api_keys, blobs, durations, minute_metrics
from interlock.plugins.agents import routes
from interlock.plugins.evidence import artifacts
from interlock.client import pauses
from interlock.dashboard import start_pages
from interlock.store.queries import feed
from interlock.kernel.commands import Work
from interlock.kernel.errors import InterlockError
from interlock.lifecycles import shipped
from interlock.server import request_schemas, request_pipeline, openapi
import msgspec

SIZE = 1 << 20

def refused(call):
    try:
        call()
    except (AttributeError, NameError):
        raise  # the case is wrong, not its text
    except (Exception, RecursionError) as error:
        return error

def told(call):
    error = refused(call)
    assert isinstance(error, InterlockError) and "is not allowed; allowed is" in str(error), error

def converted(kind, text):
    return refused(lambda: msgspec.convert(text, kind))

def body(text):
    return refused(lambda: request_pipeline.parse_body(request_schemas.JobRequest, "", text))

def long(part):
    return part * (SIZE // len(part))

CASES = {
    "a string without an end": lambda: body(b'{"task": "a", "input": "' + long(b'\\\\"[')),
    "many strings without an end": lambda: body(long(b'"[[')),
    "backslashes": lambda: body(b'{"task": "a", "input": "' + long(b'\\\\\\\\[')),
    "only brackets": lambda: body(long(b"[")),
    "flat lists": lambda: body(b'{"task": "a", "input": [' + long(b"[],")[:-1] + b"]}"),
    "NO_NUL": lambda: [converted(request_schemas.Name, long("a") + "\\0"), converted(request_schemas.Text, long("a"))],
    "Id": lambda: [converted(request_schemas.Id, long(part) + "!") for part in ("a", "_", "a_", "_0")],
    "confirm": lambda: msgspec.convert({"filter": {}, "confirm": "a"}, request_schemas.BulkRequeueRequest) and refused(
        lambda: msgspec.convert({"filter": {}, "confirm": long("a") + "!"}, request_schemas.BulkRequeueRequest)
    ),
    "SPELLING": lambda: [api_keys.read_key(text) for text in ("ilk_" + long("1"), "ilk_1_" + long("a"), long("ilk_1_a_"))],
    "SECRETS": lambda: [
        api_keys.redact_keys(long(part) + end)
        for part in ("a", "0", "ilk_1", "ilk_1_a", "ilk_1_a_", "aaaaaa ", "a_", "ilk_") for end in ("", "!", "_")
    ],
    "DIGEST": lambda: refused(lambda: key_verbs.check_digest(long("a"))),
    "_PART": lambda: [
        refused(lambda: durations.microseconds(long(part) + end))
        for part in ("1", "1.1", "1 ", " ", "1.", "1m") for end in ("", "x")
    ],
    "WORDS": lambda: [
        refused(lambda: cron.normalize_timing("every " + long(part), "UTC", 0)) for part in ("1", "minute", "seconds ", "1 ")
    ],
    "WEBHOOK and EVENT": lambda: [
        told(lambda: validation.check_webhook(start + long(part) + end, shipped()["workflow_run"]))
        for start in ("", "http://", "https://", "http://a/") for part in ("a", "/", "?", "a/", "http://", "https")
        for end in ("", "@", " ", "\\n")
    ] + [
        told(lambda: validation.check_work_once(None, Work(task="a", cause=start + long(part) + end)))
        for start in ("", "a:") for part in ("a", "1", ":", "a:1", "_-") for end in ("", ":", ":1", "!")
    ],
    "VARIABLE": lambda: [
        refused(lambda: shell.check_shell_options(shell.ShellOptions(command="a", environment={long(part) + end: "1"})))
        for part in ("a", "_", "1", "a_1") for end in ("", "-", "=")
    ],
    "REPOSITORY": lambda: [repositories.REPOSITORY.fullmatch(long(part) + end) for part in ("a", ".", "-") for end in ("", "/")],
    "REFERENCE and DIGEST of blobs": lambda: [
        (blobs.parse_reference(blobs.PREFIX + long(part)), refused(lambda: blobs.check_digest(long(part))))
        for part in ("a", "0", '","bytes":', '"}')
    ],
    "NAME and MEDIA of artifacts": lambda: [
        (refused(lambda: artifacts.check_artifact_name(long(part))), artifacts.MEDIA.fullmatch(long(part) + end))
        for part in ("a", ".", "/", "a/", "+") for end in ("", "/", "!")
    ],
    "NUMBER and INTEGER of forms": lambda: [
        (start_pages.NUMBER.fullmatch(head + long(part) + end), start_pages.INTEGER.fullmatch(head + long(part) + end))
        for head in ("", "-", "0.", "1e") for part in ("1", "0", ".", "e") for end in ("", "x", ".", "e+")
    ],
    "CURSOR of the feed": lambda: [
        feed.CURSOR.fullmatch(long(part) + end)
        for part in ("a", "0", ".", "a.0", "0.0.") for end in ("", "!", ".0")
    ],
    "TIME_OF_DAY and INSTANT": lambda: [
        refused(lambda: pauses.parse_until(start + long(part)))
        for start in ("", "18:00", "2026-11-16") for part in ("1", ":", "0:0", "-", " ", "T1")
    ],
    "cron": lambda: [refused(lambda: cron.normalize_timing(long(part), "UTC", 0)) for part in ("1,", "*", "1-", "*/", "* ")],
    "Digest of contracts and NAMED of errors": lambda: [
        (converted(routes.Digest, long(part) + end), minute_metrics.NAMED.match(long(part) + end))
        for part in ("a", "0", "a.", "_", ": ") for end in ("", "!", ": ")
    ],
    "MISSING_FIELD and UNKNOWN_FIELD": lambda: [
        parameters.describe_wrong_argument(long(part) + end)
        for part in ("Object missing required field `", "Object contains unknown field `", "`") for end in ("", "`")
    ],
}
for name, case in CASES.items():
    case()
    print(name, flush=True)
"""
# Where a regular expression stands, and which case above has its worst text; an empty one never meets a request.
EXPRESSIONS = {
    "client/pauses.py": "TIME_OF_DAY and INSTANT",
    "store/queries/feed.py": "CURSOR of the feed",
    "dashboard/start_pages.py": "NUMBER and INTEGER of forms",
    "kernel/parameters.py": "MISSING_FIELD and UNKNOWN_FIELD",
    "core/validation.py": "WEBHOOK and EVENT",
    "plugins/schedules/cron.py": "WORDS",
    "core/api_keys.py": "DIGEST",
    "kernel/blobs.py": "REFERENCE and DIGEST of blobs",
    "plugins/evidence/artifacts.py": "NAME and MEDIA of artifacts",
    "kernel/api_keys.py": "SPELLING",
    "kernel/durations.py": "_PART",
    "server/request_schemas.py": "Id",
    "plugins/shell/options.py": "VARIABLE",
    "plugins/repositories/options.py": "REPOSITORY",
    "plugins/shell/routes.py": "NO_NUL",
    "client/workstream_files.py": "NO_NUL",
    "plugins/agents/routes.py": "Digest of contracts and NAMED of errors",
    "kernel/minute_metrics.py": "Digest of contracts and NAMED of errors",
    "audit/draw.py": "",  # reads our own drawing
    "plugins/ci/config_writer.py": "",  # reads what discovery made
    "plugins/ci/discovery.py": "",  # reads files of the caller's own repository, on the caller's machine
    "plugins/ci/matrix.py": "",  # the same, of a config of at most 1 MiB
    "plugins/ci/readers.py": "",  # the same
    "plugins/ci/failures.py": "",  # reads the last lines that a step wrote, for words; nothing in them is repeated
    "worker/log_lines.py": "",  # one class of characters, in values of the worker's own log
    "git/command.py": "",  # reads what git writes
    "git/repository.py": "",  # reads names that programs give
    "process/masking.py": "",  # reads what commands write, for words without a choice in them
    "cli/arguments.py": "",  # reads our own command line
    "server/api_page.py": "",  # reads our own page
    "audit/log/state.py": "",  # reads a log file
    "lifecycles/loader.py": "",  # reads lifecycle files
    "server/openapi.py": "",  # reads our own paths
    "store/inventory.py": "",  # reads our own migrations
    "store/postgres/driver.py": "",  # reads our own statements
    "store/sqlite/driver.py": "",  # reads our own statements
    "store/migrations.py": "",  # reads our own migrations
    "store/rights.py": "",  # reads our own migrations
    "store/plugin_tables.py": "",  # reads the SQL of plugins
    "testing/simulation/shrink.py": "",  # reads our own findings
}


def test_every_expression_that_meets_a_request_takes_its_worst_text() -> None:
    """A quadratic one would take hours for a mebibyte, so a minute says nothing about this machine."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for case in filter(None, EXPRESSIONS.values()):
        assert case in done.stdout.splitlines()


def test_no_expression_is_without_a_case() -> None:
    used = re.compile(r"\bre\.(compile|match|fullmatch|search|sub|findall|split|finditer)\(|\bpattern=")
    found = {str(file.relative_to(SOURCE)) for file in SOURCE.rglob("*.py") if used.search(file.read_text())}
    assert found <= EXPRESSIONS.keys()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_a_string_without_an_end_stops_nobody(url: str) -> None:
    """60 KB of this body held the event loop for a minute."""
    with serving(url) as (base, key, _), httpx.Client(base_url=base, timeout=30) as client:
        client.headers["Authorization"] = f"Bearer {key}"
        answers: list[int] = []

        def attack() -> None:
            answers.append(
                httpx.post(f"{base}/v1/jobs", content=OPEN_STRING, headers=dict(client.headers), timeout=30).status_code
            )

        threads = [threading.Thread(target=attack) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            assert client.get("/v1/jobs").status_code == 200
        for thread in threads:
            thread.join()
        assert answers == [400] * 4


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (b"[" * 63 + b"]" * 63, True),
        (b"[" * 64 + b"]" * 64, False),
        (b'{"a":' * 63 + b"1" + b"}" * 63, True),
        (b'{"a":' * 64 + b"1" + b"}" * 64, False),
        (b'"' + b"[" * 1_000 + b'"', True),
        (b'"' + b'\\"[{' * 1_000 + b'"', True),
        (b"[" + b",".join([b"[]"] * 1_000) + b"]", True),
        (b"[" + b'{"\\u0000": 1}' + b"]", False),
        (b'"\\u0000"', False),
        (b'"\\\\u0000"', True),
    ],
)
def test_depth_and_nul_are_those_of_the_value(text: bytes, allowed: bool) -> None:
    def read() -> Any:
        return request_pipeline.parse_body(
            request_schemas.JobRequest, "", b'{"task": "a", "input": ' + text + b"}"
        ).input

    if allowed:
        assert read() == msgspec.json.decode(text)
    else:
        with pytest.raises(ApiError, match=r"nested more than 64 deep|NUL"):
            read()


def test_json_inside_a_command_may_be_deep_and_is_refused_with_a_sentence(stage: Stage) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    with pytest.raises(InterlockError, match="input is nested too deeply"):
        stage.app.send(Submit(work=(Work(task="a", input=deep),)))
    body = {"commands": [{"command": "Submit", "work": [{"task": "a", "input": deep}]}]}
    (answer,) = stage.post("/v1/commands/submit", body)["answers"]
    assert "input is nested too deeply" in answer["refused"]["text"]


def test_a_long_timing_is_refused(stage: Stage) -> None:
    for timing in ("every " + "1" * 300_000, "1," * 150_000 + "1 * * * *"):
        with pytest.raises(InterlockError, match="timing is not allowed; allowed are 1 to 1000 characters"):
            stage.app.send(DefineSchedule(name="n", timing=timing, work=Work(task="a")))
