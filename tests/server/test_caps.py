"""What one key, one address or one connection may have of a server: streams, wrong keys, time and silence."""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from interlock.client.app import App
from interlock.client.keys import issue_key
from interlock.core.listeners import Listener
from interlock.kernel.commands import CreateKey, Submit, Work
from interlock.server import event_feed
from interlock.server.errors import ApiError
from interlock.server.limits import ADDRESSES_MAX, InvalidKeyLimiter, Limits, find_network
from tests.conftest import COMMAND
from tests.server.serving import port_of, serving
from tests.server.stage import Stage, staged

ACCEPT = {"Accept": "text/event-stream"}
PATIENCE = 60.0
QUICK = ("--idle-timeout", "1s", "--request-timeout", "1s", "--max-streams", "3", "--max-wrong-keys", "4")


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never became true"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int, str]]:
    """A server with short limits in a process of its own: its address, its port and a key."""
    with serving(f"sqlite:///{tmp_path_factory.mktemp('caps')}/work.db", *QUICK) as (base, key, _):
        yield base, int(base.rpartition(":")[2]), key


# Wrong keys.


def test_wrong_keys_are_told_to_wait_and_right_ones_never(url: str) -> None:
    with staged(url, limits=Limits()) as stage:
        wrong = stage.own[:-1] + ("0" if stage.own[-1] != "0" else "1")
        keys = [wrong, "nonsense", stage.own.replace("ilk_1_", "ilk_2_")]
        told = [stage.ask("GET", "/v1/jobs", key=keys[one % 3]) for one in range(25)]
        assert [one.status_code for one in told] == [401] * 10 + [429] * 15
        assert told[-1].json()["error"]["code"] == "RATE_LIMITED"
        assert 1 <= int(told[-1].headers["retry-after"]) <= 60
        for _ in range(20):
            assert stage.ask("GET", "/v1/jobs").status_code == 200
        assert stage.ask("GET", "/v1/jobs", key="").status_code == 401, "no key is no wrong key"
        assert stage.ask("GET", "/v1/jobs", key=wrong).status_code == 429


def test_wrong_keys_are_counted_by_address_and_minute() -> None:
    wrong = InvalidKeyLimiter(10)

    def refused(address: str, now: float) -> bool:
        try:
            wrong.count(address, now)
        except ApiError:
            return True
        return False

    assert [refused("10.0.0.1", 1.0 * one) for one in range(12)] == [False] * 10 + [True] * 2
    assert not refused("10.0.0.2", 12.0)
    assert [refused("10.0.0.1", now) for now in (59.9, 60.0, 60.5, 61.0)] == [True, False, True, False]
    assert [refused(f"2001:db8::{one}", 100.0) for one in range(11)] == [False] * 10 + [True], "one network"
    assert find_network("::ffff:10.0.0.1") != find_network("::ffff:10.0.0.2")
    for one in range(3 * ADDRESSES_MAX):
        wrong.count(f"a{one}", 200.0)
    assert len(wrong.times) <= ADDRESSES_MAX


# Streams.


def open_stream(stack: ExitStack, client: httpx.Client, job: str, key: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}", **ACCEPT}
    return stack.enter_context(client.stream("GET", f"/v1/jobs/{job}/events", headers=headers))


def test_a_key_has_only_so_many_streams(quick: tuple[str, int, str]) -> None:
    base, _, key = quick
    with httpx.Client(base_url=base, timeout=PATIENCE) as client:
        signed = {"Authorization": f"Bearer {key}"}
        job = client.post("/v1/jobs", json={"task": "a"}, headers=signed).json()["id"]
        other = client.post("/v1/keys", json={"name": "b", "scopes": ["read"]}, headers=signed).json()["key"]
        with ExitStack() as stack:
            assert [open_stream(stack, client, job, key).status_code for _ in range(3)] == [200] * 3
            no = open_stream(stack, client, job, key)
            assert (no.status_code, no.headers["retry-after"]) == (429, "1")
            assert json.loads(no.read())["error"]["code"] == "TOO_MANY_STREAMS"
            assert open_stream(stack, client, job, other).status_code == 200, "another key has its own"
            assert client.get(f"/v1/jobs/{job}/events", headers=signed).status_code == 200, "a page is no stream"

        def free() -> bool:
            with ExitStack() as stack:
                return open_stream(stack, client, job, key).status_code == 200

        until(free)


def test_all_streams_share_one_reader(inside: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty quiet streams ask as often as one does, and each is told everything once, in order."""
    stage = inside
    jobs = [stage.job() for _ in range(10)]
    looks: list[int] = []
    read_moved = event_feed.read_moved

    def counted(connection: Any, tenant: int, wanted: dict[int, int]) -> Any:
        looks.append(len(wanted))
        return read_moved(connection, tenant, wanted)

    monkeypatch.setattr(event_feed, "read_moved", counted)
    pages: list[str] = []
    asked = stage.app.engine.read

    def noted(question: Any, *rest: Any) -> Any:
        pages.append(getattr(question, "__qualname__", ""))
        return asked(question, *rest)

    told: dict[int, list[int]] = {}

    def listen(place: int) -> None:
        headers = {"Authorization": f"Bearer {stage.own}", **ACCEPT}
        with stage.client.stream("GET", f"/v1/jobs/{jobs[place % 10]}/events", headers=headers) as answer:
            told[place] = [int(line[4:]) for line in answer.iter_lines() if line.startswith("id: ")]

    server = stage.client.app.state.server
    threads = [threading.Thread(target=listen, args=(one,)) for one in range(50)]
    for thread in threads:
        thread.start()
    until(lambda: sum(len(one.listeners) for one in server.streams.topics.get(1, {}).values()) == 50)
    until(lambda: looks and looks[-1] == 10)
    looks.clear()
    monkeypatch.setattr(stage.app.engine, "read", noted)
    until(lambda: len(looks) >= 4)
    assert set(looks) == {10}, "one question for all ten units"
    assert len([one for one in pages if "load_key" not in one]) <= len(looks) + 1, "and no other but about keys"
    for job in jobs:
        stage.post(f"/v1/jobs/{job}/cancel")
    for thread in threads:
        thread.join(PATIENCE)
    for place, versions in told.items():
        every = [one["version"] for one in stage.get(f"/v1/jobs/{jobs[place % 10]}/events")["events"]]
        assert versions == every
    assert len(told) == 50
    until(lambda: server.streams.topics == {} and server.streams.open == {})


def test_a_listener_that_does_not_keep_up_reads_by_itself() -> None:
    listener = Listener[None](event_feed.BACKLOG_MAX)
    listener.push([None] * event_feed.BACKLOG_MAX, False)
    assert not listener.behind
    listener.push([None], True)
    assert (listener.behind, listener.events) == (True, [])


# Connections.


def ended(connection: socket.socket) -> bytes:
    """What a connection said until the server ended it."""
    connection.settimeout(PATIENCE)
    said = b""
    while part := connection.recv(65536):
        said += part
    return said


def drip(connection: socket.socket, stop: threading.Event) -> None:
    """One byte at a time, and never the end."""
    while not stop.wait(0.05):
        try:
            connection.sendall(b"a")
        except OSError:
            return


SLOW = {
    "nothing": (b"", False),
    "empty lines": (b"\r\n\r\n", False),
    "half a line": (b"GET /heal", False),
    "headers that do not end": (b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ", True),
    "a body that does not come": (b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n{sign}\r\n", False),
    "a body that does not end": (b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n{sign}\r\n", True),
    "a body that nobody reads": (b"POST /v1/jobs HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", True),
    "silence after an answer": (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", False),
    "empty lines after an answer": (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n\r\n\r\n", False),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_connection_that_is_silent_or_slow_ends(quick: tuple[str, int, str], name: str) -> None:
    _, port, key = quick
    text, drips = SLOW[name]
    stop = threading.Event()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(text.replace(b"{sign}", f"Authorization: Bearer {key}\r\n".encode()))
        thread = threading.Thread(target=drip, args=(connection, stop))
        if drips:
            thread.start()
        try:
            said = ended(connection)
        except ConnectionResetError:
            said = b""
        finally:
            stop.set()
            if drips:
                thread.join()
    if name in ("half a line", "a body that does not come"):
        assert said.startswith(b"HTTP/1.1 408 ")
        assert b"REQUEST_TIMEOUT" in said
    if "after an answer" in name:
        assert said.count(b"HTTP/1.1 200 OK") == 1


def test_what_takes_long_to_answer_is_not_cut(quick: tuple[str, int, str]) -> None:
    """A stream and a wait last longer than a silent connection may."""
    base, _, key = quick
    with httpx.Client(base_url=base, timeout=PATIENCE, headers={"Authorization": f"Bearer {key}"}) as client:
        began = time.monotonic()
        assert client.post("/v1/wait", json={"ear": "e", "queues": ["none"], "seconds": 3}).json() == {"rung": False}
        assert time.monotonic() - began >= 3
        job = client.post("/v1/jobs", json={"task": "long"}).json()["id"]
        heard: list[str] = []

        def listen() -> None:
            with client.stream("GET", f"/v1/jobs/{job}/events", headers=ACCEPT) as answer:
                heard.extend(line for line in answer.iter_lines() if line.startswith("event: "))

        thread = threading.Thread(target=listen)
        thread.start()
        thread.join(2.5)
        assert thread.is_alive(), "the stream goes on"
        client.post(f"/v1/jobs/{job}/cancel", json={})
        thread.join(PATIENCE)
        assert len(heard) >= 2


def test_a_request_in_pieces_is_read(quick: tuple[str, int, str]) -> None:
    _, port, _ = quick
    with socket.create_connection(("127.0.0.1", port)) as connection:
        for part in (b"GET /hea", b"lthz HTTP/1.1\r\nHo", b"st: a\r\nConnection: close\r\n", b"\r\n"):
            connection.sendall(part)
            time.sleep(0.1)
        assert ended(connection).startswith(b"HTTP/1.1 200 OK")


# The page.


def test_the_page_runs_nothing_but_its_own_script(stage: Stage) -> None:
    answer = stage.ask("GET", "/api", key="")
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    for tag in ("script", "style"):
        (own,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        assert policy[f"{tag}-src"] == f"'sha256-{b64encode(sha256(own.encode()).digest()).decode()}'"
    assert (policy["connect-src"], policy["frame-ancestors"], policy["base-uri"]) == ("'self'", "'none'", "'none'")
    assert not re.search(r'\son\w+=|\sstyle=|src=|href="https?:', answer.text), "nothing that the policy would stop"


def test_the_limits_are_those_that_the_docs_name() -> None:
    limits = Limits()
    assert (limits.streams, limits.idle_seconds, limits.request_seconds, limits.wrong_keys) == (100, 30, 30, 10)


# The list of processes.


def arguments_of(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc here")
@pytest.mark.parametrize("spelling", [["--db", "{url}"], ["--db={url}"]])
def test_a_password_is_not_in_the_list_of_processes(url: str, spelling: list[str]) -> None:
    """The process that serves keeps its id, serves with the password, and ends well when it is told to."""
    if url.startswith("sqlite"):
        pytest.skip("it has no password")
    with App(url) as app:
        key = issue_key(app, CreateKey(name="ci", scopes=("admin",))).text
        app.send(Submit(work=(Work(task="a"),)))
    scheme, _, rest = url.partition("://")
    user, _, place = rest.rpartition("@")
    secret = f"{scheme}://{user.partition(':')[0] or 'nobody'}:secret%2Fword@{place}"
    given = [one.replace("{url}", secret) for one in spelling]
    command = [str(COMMAND), "serve", *given, "--port", "0", "--log-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            base = f"http://127.0.0.1:{port_of(process)}"
            shown = arguments_of(process.pid)
            assert "secret" not in shown
            assert "***" in shown
            jobs = httpx.get(f"{base}/v1/jobs", headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE).json()
            assert len(jobs["jobs"]) == 1
            process.terminate()
            said = "".join(process.communicate(timeout=PATIENCE))
            assert (process.returncode, "secret" in said) == (0, False)
        finally:
            process.kill()


def test_a_command_gets_its_arguments_as_they_were_given(tmp_path: Path) -> None:
    """Exit code and message are those of the command; the password is in none of them."""
    bad = "postgresql://ann:secret@127.0.0.1:1/none?password=secret2"
    done = subprocess.run(
        [str(COMMAND), "list", "--db", bad], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "secret" not in done.stdout + done.stderr
    code = (
        "import sys; from interlock.cli import arguments; before = sys.argv[1:]; arguments.hide_passwords(); "
        "print(sys.argv[1:], open('/proc/self/cmdline').read().count('sec' + 'ret'))"
    )
    given = [
        sys.executable,
        "-c",
        code,
        "--db",
        bad,
        "--db=postgres://h/d",
        "x=postgresql://a:b@c/d",
        "--input",
        '{"a": 1}',
    ]
    done = subprocess.run(given, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.strip() == f"{given[3:]!r} 0", done.stderr
