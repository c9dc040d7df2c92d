"""Waiting by the command line: approvals with other arguments, what came of a call, and options of plugins."""

import json
from typing import Any

import pytest

from interlock.kernel.commands import LeaseGrant, Record
from tests.cli.places import Place
from tests.engine.world import held


def begin(place: Place) -> LeaseGrant:
    place.world.submit()
    (grant,) = place.world.claim(place.world.worker())
    place.world.start(grant)
    return grant


def record(place: Place, grant: LeaseGrant, kind: str, name: str, payload: Any) -> None:
    command = Record(held=(held(grant),), kind=kind, name=name, payload=json.dumps(payload))
    assert place.world.send(command)[0].accepted


def test_approve_takes_other_arguments(place: Place) -> None:
    grant = begin(place)
    record(place, grant, "child", "delete?", {"task": "delete?", "lifecycle": "approval"})
    (item,) = place.ask("inbox", "--json").json["items"]
    wrong = place.ask("approve", item["id"], "--arguments", "{branch}")
    assert (wrong.code, "arguments is not JSON" in wrong.err) == (2, True)
    done = place.ask("approve", item["id"], "--arguments", '{"branch": "older"}', "--by", "ann")
    assert done.code == 0, done.err
    assert place.ask("show", item["id"], "--json").json["result"]["arguments"] == {"branch": "older"}


def test_decide_takes_data(place: Place) -> None:
    grant = begin(place)
    record(place, grant, "effect", "charge", {"state": "begun"})
    record(place, grant, "child", "q", {"task": "charge", "lifecycle": "effect", "input": '{"effect": "charge"}'})
    (item,) = place.ask("inbox", "--json").json["items"]
    wrong = place.ask("decide", item["id"], "stop", "--data", "3")
    assert (wrong.code, "data are not allowed with 'stop'" in wrong.out) == (1, True)
    assert place.ask("decide", item["id"], "happened", "--data", '{"id": 7}', "--by", "ann").code == 0
    assert [note.payload for note in place.world.notes(grant.unit, "effect_result")] == ['{"id": 7}']


@pytest.mark.parametrize("text", ["{", '{"nothing": 3}', '{"checks": 3}'])
def test_wrong_options_are_refused(place: Place, text: str) -> None:
    done = place.ask("submit", "build", "--lifecycle", "task", "--options", text)
    assert done.code == 2
    assert done.err
    assert place.world.count("unit") == 0
