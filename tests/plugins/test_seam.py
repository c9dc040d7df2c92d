"""A plugin of which the core knows nothing brings everything that a plugin can bring, and all of it is used."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import typer
from litestar.testing import TestClient
from typer.testing import CliRunner

from interlock.audit.laws import audit
from interlock.cli.main import add_groups
from interlock.client.app import App
from interlock.core.plugin import Plugin, Registry
from interlock.dashboard.site import make_routes
from interlock.kernel.commands import Claim, Submit, Work
from interlock.kernel.errors import InterlockError, Unknown
from interlock.lifecycles import load
from interlock.plugins import STANDARD
from interlock.server.app import build_app
from interlock.testing.simulation import simulate
from tests.dashboard.visitor import BASE, Visitor
from tests.engine.tamper import behind_the_guard
from tests.engine.world import World
from tests.plugins.reviews import HOUR_US, PLUGIN, GiveReview
from tests.server.stage import Stage
from tests.store.databases import KINDS, declare, fresh

FOLDER = Path(__file__).parent
DOCS = FOLDER.parents[1] / "docs"
REGISTRY = Registry((*STANDARD.plugins, PLUGIN))
WANTED = '{"reviews": {"by": "ann"}}'


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path, server: str) -> Iterator[World]:
    reviews = load(FOLDER / "review.toml")
    with fresh(request.param, tmp_path, server, reviews, tables=REGISTRY.tables) as connection:
        yield World(connection, registry=REGISTRY)


def finish_job(world: World, **work: str) -> int:
    job = world.submit(**work)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    world.finish(grant)
    return job


def review_of(world: World, job: int) -> int:
    declare(world.connection, 1)
    ((unit,),) = world.connection.rows("SELECT unit FROM review WHERE job = :job", {"job": job})
    return int(unit)


def test_it_is_small() -> None:
    assert len((FOLDER / "reviews.py").read_text(encoding="utf-8").splitlines()) < 150


def test_its_route_and_its_commands_are_there(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/work.db", plugins=[PLUGIN])
    with TestClient(build_app(app, make_pages=make_routes), base_url=BASE) as client:
        stage = Stage(app, client)
        app.send(Submit(work=(Work(task="mail", options=WANTED),)))
        grant = stage.claim()
        stage.finish(grant)
        ((unit,),) = app.read(lambda connection, tenant: connection.rows("SELECT unit FROM review"))
        assert stage.post(f"/v1/reviews/{unit}", {"verdict": "fine"}) == {"state": "DONE"}
        stage.post(f"/v1/reviews/{grant.unit}", {"verdict": "fine"}, status=404)
        stage.post(f"/v1/reviews/{unit}", {"verdict": "fine"}, status=403, key=stage.key("read"))
        assert "/v1/reviews/{id}" in client.get("/openapi.json").json()["paths"]
        assert "interlock_reviews 1.0\n" in stage.ask("GET", "/metrics").text
        visitor = Visitor(stage)
        assert "1 for ann" not in visitor.get("/ui/reviews")  # who has not signed in is led to the sign-in
        assert visitor.sign_in(stage.own).get("/ui/reviews") == "1 for ann"
        assert 'href="/ui/reviews"' in visitor.get("/ui/jobs")  # in the menu
    cli = typer.Typer()
    add_groups(cli, Registry((*STANDARD.plugins, PLUGIN)))
    assert CliRunner().invoke(cli, ["review", "who"]).output == "ann\n"


def test_a_job_that_wants_a_review_gets_one_and_another_does_not(world: World) -> None:
    plain = finish_job(world)
    assert world.count("review") == 0
    job = finish_job(world, options=WANTED)
    unit = review_of(world, job)
    assert (world.unit(unit).lifecycle, world.unit(unit).state) == ("review", "OPEN")
    assert world.send(GiveReview(unit=unit, verdict="fine", actor="ann")) == "DONE"
    assert [event.actor for event in world.events(unit)] == ["engine", "ann"]
    with pytest.raises(InterlockError, match="is no review"):
        world.send(GiveReview(unit=plain, verdict="fine"))
    with pytest.raises(Unknown):
        world.send(GiveReview(unit=unit, verdict="fine", tenant=2))


def test_time_reminds_a_reviewer_once(world: World) -> None:
    unit = review_of(world, finish_job(world, options=WANTED))
    for passed, reminders in ((1, 0), (HOUR_US / 1_000_000, 1), (HOUR_US / 1_000_000, 1)):
        world.pass_time(passed)
        world.tick()
        assert world.count("note", f"unit = {unit} AND kind = 'reminded'") == reminders


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ('{"reviews": {"by": 7}}', "option 'reviews': Expected `str`"),
        ('{"reviews": {}}', "missing required field"),
        ('{"reveiw": {}}', r"there is no option 'reveiw'; there are .*\breviews"),
        ("[]", "options are a JSON object"),
        ("{", "is not JSON"),
    ],
)
def test_an_option_that_the_plugin_does_not_know_is_refused(world: World, options: str, why: str) -> None:
    with pytest.raises(InterlockError, match=why):
        world.submit(options=options)
    assert world.count("unit") == 0


def test_its_guard_is_asked_before_a_unit_is_granted(world: World) -> None:
    refused, plain = world.submit(options='{"reviews": {"by": "nobody"}}'), world.submit()
    claim = Claim(worker=world.worker(), limit=10, nonce="0" * 16, key="c")
    assert [grant.unit for grant in world.engine.send(claim)] == [plain]
    declare(world.connection, 1)
    assert world.unit(refused).state == "queued"
    assert (
        world.count("note", f"unit = {refused} AND kind = 'withheld' AND payload LIKE '%nobody would review it%'") == 1
    )


def test_its_guard_is_asked_before_an_end_is_accepted(world: World) -> None:
    job = world.submit(options=WANTED)
    (grant,) = world.claim(world.worker())
    world.start(grant)
    refused = world.finish(grant, result='"secret"')
    assert (refused.accepted, refused.why) == (False, "reviewers may not see it")
    assert (world.unit(job).state, world.count("review")) == ("running", 0)
    ended = world.finish(grant, result='"plain"')
    assert (ended.accepted, world.unit(job).state, world.count("review")) == (True, "succeeded", 1)


def test_its_stories_are_played_and_its_laws_asked_by_the_simulation() -> None:
    report = simulate(3, kinds=(), registry=REGISTRY)
    assert report.violations == []
    assert report.moves["review", "OPEN", "approve"] > 0
    broken = Plugin(name="odd", laws={"nothing is ever made": lambda connection: iter([(1, "it is there")])})
    found = simulate(3, kinds=(), registry=Registry((*STANDARD.plugins, broken))).violations
    assert "unit 1: nothing is ever made: it is there" in found


def test_every_plugin_that_is_shipped_has_a_page_of_the_docs() -> None:
    text = (DOCS / "plugins.md").read_text(encoding="utf-8")
    for plugin in STANDARD.plugins:
        assert (DOCS / plugin.docs).is_file(), plugin.name
        assert f"[{plugin.name}]({plugin.docs})" in text


def test_its_law_is_asked(world: World, server: str) -> None:
    unit = review_of(world, finish_job(world, options=WANTED))
    with behind_the_guard(world.connection, server) as owner:
        owner.rows("DELETE FROM review")
        declare(owner, 1)
        assert (unit, "it is a review of no job") in list(REGISTRY.laws["every review is of a job"](owner))
    declare(world.connection, 1)
    found = list(audit(world.connection, world.lifecycles, laws=REGISTRY.laws))
    assert [(one.law, one.unit) for one in found] == [("every review is of a job", unit)]


def test_what_work_says_is_the_cores_or_one_plugins() -> None:
    """What is spelled as fields of work is the type of one plugin; the others have a member of its options."""
    owners: dict[str, str] = {}
    fields = {field.name: field for field in msgspec.structs.fields(Work)}
    for name, options in STANDARD.options.items():
        for field in () if name in dict(STANDARD.hooks.options) else msgspec.structs.fields(options):
            assert owners.setdefault(field.name, name) == name
            assert (field.type, field.default) == (fields[field.name].type, fields[field.name].default)
    assert {name: [field for field in owners if owners[field] == name] for name in owners.values()} == {
        "concurrency": ["mutex", "limit_key", "limit", "rate_key", "rate", "rate_per_us"],
        "workflows": ["step", "when", "undo", "template", "template_version"],
        "approvals": ["quorum", "on_reject", "approvers", "not_submitter"],
    }


def test_what_two_plugins_bring_alike_is_refused() -> None:
    with pytest.raises(ValueError, match="listed twice"):
        Registry((PLUGIN, PLUGIN))
    with pytest.raises(ValueError, match="GiveReview, which another one has"):
        Registry((PLUGIN, Plugin(name="other", commands=PLUGIN.commands)))
    with pytest.raises(ValueError, match="lifecycle 'review', which is there already"):
        Registry((Plugin(name="other", lifecycles=PLUGIN.lifecycles), PLUGIN)).lifecycles({})


def test_a_table_without_tenants_is_refused(tmp_path: Path, server: str) -> None:
    tables = {"odd": "CREATE TABLE odd (\n    unit BIGINT PRIMARY KEY\n);\n"}
    with (
        pytest.raises(InterlockError, match="table odd has no column 'tenant"),
        fresh("sqlite memory", tmp_path, server, tables=tables),
    ):
        pass
