"""Forced moves: who may make them, and how `interlock audit` tells of them."""

import json
from pathlib import Path

import pytest

from interlock.audit.laws.rows import ALLOWED
from interlock.kernel.commands import Force
from interlock.kernel.errors import Denied
from interlock.kernel.ids import format_id
from tests.cli.test_audit import Place
from tests.conftest import Run
from tests.engine.tamper import behind_the_guard
from tests.store.databases import KINDS, fresh

FILES = [kind for kind in KINDS if kind != "sqlite memory"]


@pytest.mark.parametrize("kind", FILES)
def test_the_audit_lists_every_forced_move_and_it_is_no_finding(
    kind: str, tmp_path: Path, server: str, interlock: Run
) -> None:
    with fresh(kind, tmp_path, server) as connection:
        place = Place(connection, tmp_path, server)
        one, other = place.world.submit(), place.world.submit()
        place.world.send(Force(unit=one, state="failed", reason="the machine burnt down", actor="ann"))
        place.world.pass_time(1)
        place.world.send(Force(unit=other, state="succeeded", reason="done by hand", actor="eve"))
        place.world.pass_time(1)
        place.world.send(Force(unit=one, state="queued", reason="it was saved", actor="ann"))
        done = interlock("audit", "--json", "--db", place.url)
        assert (done.returncode, json.loads(done.stdout)["found"]) == (0, 0)
        told = json.loads(done.stdout)["forced"]
        assert [(move["unit"], move["state"], move["by"], move["reason"]) for move in told] == [
            (format_id("job", one), "failed", "ann", "the machine burnt down"),
            (format_id("job", other), "succeeded", "eve", "done by hand"),
            (format_id("job", one), "queued", "ann", "it was saved"),
        ]
        assert all(move["at"].startswith("2023-") for move in told)
        said = interlock("audit", "--db", place.url)
        assert said.returncode == 0
        assert f"forced, no problem: {format_id('job', other)} to succeeded by eve at 2023-" in said.stdout


@pytest.mark.parametrize("kind", FILES)
def test_a_forced_event_that_no_operator_allowed_is_a_finding(
    kind: str, tmp_path: Path, server: str, interlock: Run
) -> None:
    with fresh(kind, tmp_path, server) as connection:
        place = Place(connection, tmp_path, server)
        job = place.world.submit()
        place.world.send(Force(unit=job, state="failed", reason="try", actor="ann"))
        with behind_the_guard(connection, server) as owner:
            owner.rows("DELETE FROM forced_move")
        done = interlock("audit", "--db", place.url)
        assert done.returncode == 1
        assert f"no operator allowed it [{ALLOWED}]" in done.stdout


def test_the_role_for_programs_may_not_force(tmp_path: Path, server: str, interlock: Run) -> None:
    with fresh("postgres", tmp_path, server) as connection:
        place = Place(connection, tmp_path, server)
        job = place.world.submit()
        before = place.world.unit(job)
        url = place.url.replace("//operator@", "//ordinary@")
        done = interlock("force", str(job), "failed", "--reason", "try", "--db", url)
        assert (done.returncode, done.stdout) == (2, "")
        assert "may not force a move: connect as the owner of the tables, or as a role that was granted" in done.stderr
        assert "Traceback" not in done.stderr
        with pytest.raises(Denied, match="may not force a move"):
            place.world.engine.send(Force(unit=job, state="failed", reason="try", actor="ann"))
        assert place.world.unit(job) == before
        owner = place.url.replace("//operator@", "//postgres@")
        assert interlock("force", str(job), "failed", "--reason", "try", "--db", owner).returncode == 0
