"""The server starts where it is safe, says so, and stops when it is told to."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from interlock.client.app import App
from interlock.kernel.errors import InterlockError
from interlock.server.start import ServerOptions, check_options, is_loopback, serve
from tests.conftest import Run
from tests.server.serving import serving
from tests.store.databases import alone, fresh_postgres, swap

LOOPBACK = {"127.0.0.1": True, "127.9.9.9": True, "::1": True, "localhost": True, "0.0.0.0": False, "::": False,
            "10.0.0.1": False, "example.org": False}  # fmt: skip


def test_loopback_is_known() -> None:
    assert {host: is_loopback(host) for host in LOOPBACK} == LOOPBACK


def test_a_public_address_needs_tls_or_a_proxy(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text("")
    file.chmod(0o600)
    for place in (ServerOptions(), ServerOptions(host="0.0.0.0", behind_proxy=True)):
        check_options(place)
    with pytest.raises(InterlockError, match="in the clear"):
        check_options(ServerOptions(host="0.0.0.0"))
    with pytest.raises(InterlockError, match="belong together"):
        check_options(ServerOptions(certificate=file))
    with pytest.raises(InterlockError, match="cannot be read"):
        check_options(ServerOptions(certificate=file, private_key=tmp_path / "none"))


def test_a_superuser_does_not_serve(server: str, tmp_path: Path) -> None:
    with (
        fresh_postgres(server, f"su{abs(hash(tmp_path))}") as url,
        App(url.replace("//ordinary@", "//postgres@")) as app,
        pytest.raises(InterlockError, match="bypasses row-level security"),
    ):
        serve(app, ServerOptions())


def test_serve_answers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/work.db") as (base, key, process):
        with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {key}"}, timeout=30) as client:
            assert client.get("/healthz").json() == {"status": "ok"}
            assert client.post("/v1/jobs", json={"task": "a"}).status_code == 201
            assert len(client.get("/v1/jobs").json()["jobs"]) == 1
            assert "Interlock API" in client.get("/api").text
            assert client.get("/", follow_redirects=True).url.path == "/ui/login"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert process.stderr
        assert key not in process.stderr.read()


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "litestar.py").write_text("raise ModuleNotFoundError(\"No module named 'litestar'\", name='litestar')")
    code = "from interlock.cli import main; import sys; sys.argv = ['interlock', 'serve']; main()"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'interlock[server]'" in done.stderr


@pytest.mark.req("X-26")
def test_it_says_when_its_database_is_away_and_when_it_is_back(server: str, tmp_path: Path) -> None:
    name = f"h{abs(hash(tmp_path))}"
    with fresh_postgres(server, name) as url, serving(url) as (base, key, _), httpx.Client(timeout=60) as client:
        everywhere = [f"{base}/healthz", f"{base}/readyz"]
        assert [client.get(one).status_code for one in everywhere] == [200, 200]
        alone(server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        alone(server, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
        answer = client.get(everywhere[-1])  # both ask the same
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "UNAVAILABLE")
        assert answer.headers["retry-after"] == "1"
        alone(server, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        assert [client.get(one).status_code for one in everywhere] == [200, 200]
        job = client.post(f"{base}/v1/jobs", json={"task": "a"}, headers={"Authorization": f"Bearer {key}"})
        assert job.status_code == 201


def test_a_database_without_the_schema_is_not_served(server: str, tmp_path: Path, interlock: Run) -> None:
    name = f"bare{abs(hash(tmp_path))}"
    alone(server, f"CREATE DATABASE {name}")
    try:
        done = interlock("serve", "--db", swap(server, name), "--port", "0", timeout=60)
        assert done.returncode == 2
        assert "interlock db upgrade" in done.stderr
        assert "Traceback" not in done.stderr
    finally:
        alone(server, f"DROP DATABASE {name} WITH (FORCE)")
