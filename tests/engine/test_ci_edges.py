"""Every listed move of a CI run, its jobs, their attempts and leases is taken through the plugin.

`Plan` makes the jobs, what a runner saw decides on retries, and a run that nobody is told of is reported by itself.
"""

from collections import Counter

import msgspec
import pytest

from interlock.kernel.commands import Plan, Record, Revoke, Submit
from interlock.lifecycles import shipped
from interlock.plugins.ci.failures import Sight
from interlock.plugins.ci.options import NOBODY, CiOptions, encode_options
from interlock.plugins.ci.queries import list_ci_jobs
from interlock.plugins.ci.results import SIGHT
from interlock.testing.simulation.scenarios import Move, list_moves, list_taken_moves, works
from tests.engine.journeys import Journey
from tests.engine.world import World, held
from tests.store.databases import declare

MACHINES = ("ci_run", "ci_job", "ci_attempt", "lease")
AGAIN, FINAL = 1, 2  # exit codes: one that is tried again, and one that is not
# As in `scenarios.py`; `plan` and `no-plan` are said to the run, and a failure is told with what the runner saw.
STORIES = """
build: plan claim start beat upload complete
build: no-plan
build run.plan_timeout=5s: 5 tick
build: plan run.cancel
build > build: plan 2.cancel
build: plan cancel
lint: plan cancel
build run.queue_timeout=60s: plan 60 tick
build run.timeout=5s: plan claim 5 tick
build: plan claim release
build: plan claim cancel
build: plan claim lose claim lose claim lose
build: plan claim start run break
build: plan claim start complete
build: plan claim start break
build: plan claim start release
build ttl=40s: plan claim start lose claim start lose claim start lose
build: plan claim start cancel stop
build: plan claim start beat complete
build ttl=40s: plan claim start beat release claim start beat lose
build: plan claim start beat cancel complete
build ttl=40s losses=1: plan claim start beat lose
build timeout=60s: plan claim start beat endure
build: plan claim start beat run.cancel break
build: plan claim start beat upload break
build ttl=40s: plan claim start beat upload release claim start beat upload lose
build ttl=40s losses=1: plan claim start beat upload lose
build timeout=60s: plan claim start beat upload endure
build: plan claim start beat upload cancel 30 tick
build: plan claim start cancel 30 tick
build: plan claim start beat cancel break
build lint: plan run.cancel
build: plan claim start beat run.cancel 30 tick
build attempts=2: plan claim start fail
build attempts=2 timeout=60s retries=1: plan claim start beat endure
build: plan claim start beat revoke
"""


class PluginJourney(Journey):
    """A story of a run that is planned by the plugin."""

    def play(self, line: str) -> None:
        made, _, verbs = line.partition(":")
        run, *jobs = works(["ci", *(word for word in made.split() if not word.startswith("retries"))], self.queue)
        run = msgspec.structs.replace(run, options=encode_options(CiOptions(report_to=NOBODY)))
        own = CiOptions(job="build", retries={f"exit {AGAIN}": 1, "timeout": int("retries" in made)})
        self.jobs = tuple(
            msgspec.structs.replace(job, parent=None, step=job.ref, options=encode_options(own)) for job in jobs
        )
        self.units = [made.unit for made in self.world.send(Submit(work=(run,)))]
        for word in verbs.split():
            who, _, verb = word.rpartition(".")
            if verb.isdigit():
                self.world.pass_time(int(verb))
            elif verb in ("plan", "no-plan"):
                self.plan(failed="" if verb == "plan" else "no config")
            elif who or not self.speak(verb):
                self.order(self.units[{"run": 0, "2": 2}.get(who, 1)], verb)

    def plan(self, failed: str) -> None:
        run, world = self.units[0], self.world
        world.send(Plan(unit=run, work=() if failed else self.jobs, plan="null", failed=failed))
        declare(world.connection, 1)
        self.units += [job.unit for job in list_ci_jobs(world.connection, 1, run)]

    def speak(self, verb: str) -> bool:
        if verb in ("fail", "break"):
            sight = Sight(step="go", exit_code=AGAIN if verb == "fail" else FINAL)
            payload = msgspec.json.encode(sight).decode()
            self.world.send(Record(held=(held(self.grant),), kind="step", name=SIGHT, payload=payload))
        if verb == "revoke":
            self.world.send(Revoke(unit=self.grant.unit, reason="an operator"))
            return True
        return super().speak(verb)


def play_all(world: World) -> Counter[Move]:
    """How often each move was taken when all stories have been played."""
    for place, line in enumerate(filter(None, STORIES.splitlines())):
        PluginJourney(world, f"q{place}").play(line)
    # The lease of an attempt that is not acknowledged is revoked (A4-18); that of the job that plans expires.
    Journey(world, "plan").play("job: claim lose")
    declare(world.connection, 1)
    units = [unit for (unit,) in world.connection.rows("SELECT id FROM unit ORDER BY id")]
    return Counter(
        move for unit in units for move in list_taken_moves(shipped(), world.events(unit)) if move[0] in MACHINES
    )


def wanted_moves() -> set[Move]:
    """The listed moves of the machines of document 004."""
    return {move for move in list_moves(shipped()) if move[0] in MACHINES}


@pytest.mark.req("R4-15", "R4-30")
def test_every_move_of_document_004_is_taken_through_the_plugin(world: World) -> None:
    counts = play_all(world)
    wanted = wanted_moves()
    words = sorted(f"{lifecycle}: '{trigger}' from {source}" for lifecycle, source, trigger in wanted - counts.keys())
    assert words == []
    assert set(counts) == wanted  # and nothing leads out of REPORTED, nor out of what an attempt ends with
    ends = {"ci_run": {"REPORTED"}, "ci_attempt": {"SUCCEEDED", "FAILED", "CANCELED", "TIMED_OUT", "STALE"}}
    assert not [move for move in counts if move[1] in ends.get(move[0], ())]
