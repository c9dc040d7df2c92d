"""Interlock beside its peers and above its floor: one run, interleaved, on one server."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine, measures, redis_server, report
from bench.measures import Act, Sizes
from bench.stage import NODE_FOLDER, PEERS_PYTHON, ROOT, Broken, Peer, Stage, node, npm
from tests.postgres.server import postgres

SERVER = (
    "-c fsync=on -c synchronous_commit=on -c shared_buffers=1GB -c max_wal_size=4GB -c max_connections=300 "
    "-c checkpoint_timeout=30min"
)
OUT, REDIS_FOLDER = ROOT / ".bench", PEERS_PYTHON.parent.parent / "redis"
PEERS = (
    Peer("Interlock", "interlock"),
    Peer("floor", "floor"),
    Peer("PgQueuer", "pgqueuer"),
    Peer("Procrastinate", "procrastinate", jobs=2_000),
    Peer("Chancy", "chancy", jobs=5_000),
    Peer("DBOS", "dbos", jobs=1_000),
    Peer("graphile-worker", "graphile.mjs"),
    Peer("pg-boss", "pgboss.mjs"),
    *(
        Peer(f"{title} ({store.removeprefix('redis-')})", title.lower(), store, jobs=2_000)
        for title in ("Celery", "Dramatiq", "SAQ")
        for store in ("redis-always", "redis-everysec")
    ),
    Peer("Interlock (SQLite)", "interlock", "sqlite"),
    Peer("Huey", "huey", "sqlite", jobs=5_000),
    Peer("DBOS (SQLite)", "dbos", "sqlite", jobs=500),
)
IN_QUICK = ("interlock", "floor", "pgqueuer")


def select_peers(quick: bool, named: str) -> list[Peer]:
    """Those that are measured: all, the few of the quick form, or those that PEERS names."""
    names = [name.strip().lower() for name in named.split(",") if name.strip()]
    if names:
        return [peer for peer in PEERS if peer.module.removesuffix(".mjs") in names or peer.title.lower() in names]
    return [peer for peer in PEERS if not quick or (peer.module in IN_QUICK and peer.store == "postgres")]


def explain_absence(module: str) -> str:
    """The peer's own requirements are there; answers why not, if they are not."""
    name = module.removesuffix(".mjs")
    needs, stamp = ROOT / "bench" / f"requirements-{name}.txt", PEERS_PYTHON.parent.parent / f".{name}"
    if stamp.exists() and stamp.read_text() == needs.read_text():
        return ""
    lines = needs.read_text().splitlines()
    for_node = [line.removeprefix("npm ") for line in lines if line.startswith("npm ")]
    for_python = [line for line in lines if not line.startswith("npm ")]
    if not PEERS_PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", PEERS_PYTHON.parent.parent], check=True)
    pip = [PEERS_PYTHON, "-m", "pip", "-qq", "--disable-pip-version-check", "install", "--no-input", *for_python]
    why = failure(pip) if for_python else ""
    if for_node and not why:
        NODE_FOLDER.mkdir(exist_ok=True)
        options = ["--prefix", NODE_FOLDER, "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        why = failure([node(), npm(), "install", *options, *for_node])
    if not why:
        stamp.write_text(needs.read_text())
    return why


def failure(command: Sequence[object]) -> str:
    """The command has been run; answers what it said last, if it failed."""
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return (done.stderr.strip().splitlines() or ["it said nothing"])[-1] if done.returncode else ""


def redis_servers(stack: ExitStack, peers: Sequence[Peer], folder: Path) -> dict[str, str]:
    """A server for each way of syncing that a peer asks for."""
    stores = {peer.store for peer in peers if peer.store.startswith("redis-")}
    program = redis_server.find_redis(REDIS_FOLDER) if stores else None
    return {
        store: stack.enter_context(redis_server.redis(program, folder / store, store.removeprefix("redis-")))
        for store in sorted(stores)
        if program
    }


def present(peers: Sequence[Peer]) -> list[Peer]:
    """Those that can be measured here; the others are named as absent."""
    usable = []
    for peer in peers:
        why = "" if peer.ours else explain_absence(peer.module)
        if peer.store.startswith("redis-") and not redis_server.find_redis(REDIS_FOLDER):
            why = "there is no redis-server here, and apt offers none"
        try:
            if why:
                raise Broken(why)
            peer.about = peer.play("describe")
        except Broken as absent:
            print(f"absent: {peer.title}: {absent}", flush=True)
        else:
            usable.append(peer)
            print(f"{peer.title} {peer.about['version']}: {peer.about['configuration']}", flush=True)
    return usable


def run_act(stage: Stage, peer: Peer, act: Act, sizes: Sizes, number: int, results: report.Results) -> None:
    """Runs one act. Its values are in the results; a peer that did not do its part says so and goes on."""
    others = machine.Others([os.getpid(), stage.postmaster])
    try:
        values = act(peer, sizes)
    except Broken as broken:
        print(f"  {broken}", flush=True)
        return
    cores = others.cores()
    for measure, value in values.items():
        series = results.setdefault(measure, {}).setdefault(peer.title, report.Series())
        series.values[number], series.others[number] = value, cores
        print(
            f"  {measure.name:<32} {peer.title:<18} {report.number(value):>9} {measure.unit} (others {cores:.1f})",
            flush=True,
        )


def run_round(stage: Stage, peers: Sequence[Peer], sizes: Sizes, number: int, results: report.Results) -> None:
    """Every act of every peer, act by act, so that what is compared is measured minutes apart at most."""
    ready = []
    for peer in peers:
        try:
            stage.set_up(peer, number)
            ready.append(peer)
        except Broken as broken:
            print(f"  {broken}", flush=True)
    for needs, act in measures.ACTS:
        turn = number % len(ready) if ready else 0
        for peer in [*ready[turn:], *ready[:turn]]:
            if peer.can(needs):
                run_act(stage, peer, act, sizes, number, results)
    for peer in peers:
        stage.take_down(peer)


def big_tables(stage: Stage, peers: Sequence[Peer], sizes: Sizes, results: report.Results) -> None:
    for peer in peers:
        if peer.can("million") and peer.store == "postgres":
            stage.set_up(peer, sizes.rounds)
            run_act(stage, peer, measures.million, sizes, 0, results)
            stage.take_down(peer)


def write_results(results: report.Results, peers: Sequence[Peer], about: dict[str, Any]) -> None:
    OUT.mkdir(exist_ok=True)
    (OUT / "results.json").write_text(json.dumps(report.as_data(results, about), indent=1) + "\n")
    (OUT / "drain.svg").write_text(report.chart(results))
    text = report.table(results, {peer.title: peer.store for peer in peers})
    (OUT / "table.md").write_text(text + "\n")
    print(f"\n{text}\n\nWritten: .bench/results.json, .bench/table.md, .bench/drain.svg")


def main() -> None:
    quick, started = bool(os.environ.get("QUICK")), time.monotonic()
    sizes = measures.QUICK if quick else measures.FULL
    sizes = replace(sizes, rounds=int(os.environ.get("ROUNDS") or sizes.rounds))
    peers = present(select_peers(quick, os.environ.get("PEERS", "")))
    results: report.Results = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stage = Stage(stack.enter_context(postgres(SERVER)), folder, redis_servers(stack, peers, folder))
        for number in range(sizes.rounds):
            print(f"round {number + 1} of {sizes.rounds}", flush=True)
            run_round(stage, peers, sizes, number, results)
        if os.environ.get("LONG"):
            big_tables(stage, peers, sizes, results)
        about = {
            **machine.describe_machine(), "postgresql": stage.version,
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "command": "make bench QUICK=1" if quick else "make bench", "rounds": sizes.rounds,
            "peers": {peer.title: {key: peer.about[key] for key in ("version", "configuration")} for peer in peers},
        }  # fmt: skip
    about["seconds"] = round(time.monotonic() - started)
    write_results(results, peers, about)


if __name__ == "__main__":
    main()
