"""Every command says of itself who carries it out, which scope it needs, and whether it can be asked over HTTP."""

from interlock.client import first_names, http_codec
from interlock.core.engine import VERBS
from interlock.kernel import commands
from interlock.kernel.api_keys import SCOPES
from interlock.kernel.commands import Command, Route
from interlock.plugins import STANDARD

KINDS = sorted({**VERBS, **STANDARD.commands}, key=lambda kind: kind.__name__)


def test_a_command_declares_its_committer_its_scope_and_whether_it_is_public() -> None:
    for kind in KINDS:
        declared = {
            key: value
            for base in reversed(kind.__mro__[: kind.__mro__.index(Command)])
            for key, value in vars(base).items()
        }
        assert isinstance(declared["committer"], Route), kind
        assert declared["scope"] in SCOPES, kind
        assert declared["public"] in (True, False), kind
        assert kind.other_scope in ("", *SCOPES), kind
        assert getattr(commands, kind.__name__) is kind, "whoever imports the package finds it"


def test_what_is_asked_under_a_lease_or_to_get_one_has_a_committer_and_a_scope_of_its_own() -> None:
    of_leases = {kind for kind in KINDS if kind.__module__ == "interlock.kernel.commands.leases"} | {commands.AddTasks}
    assert of_leases == {kind for kind in KINDS if kind.committer in (Route.HOLDER, Route.CLAIM)}
    assert {kind.scope for kind in of_leases} == {"worker"}
    assert {kind.__name__ for kind in KINDS if not kind.takes_key} == {
        "Claim", "Start", "Heartbeat", "Finish", "ReadOutput", "ReadSteps", "Release", "AppendLog", "AddArtifact",
        "AddTasks",
    }  # fmt: skip


def test_every_public_command_can_be_sent_under_the_scopes_that_it_may_need() -> None:
    assert set(http_codec.SCOPES) == {kind.scope for kind in KINDS if kind.public}
    for kind in KINDS:
        taken = {scope for scope in http_codec.SCOPES if kind in http_codec.list_commands(scope)}
        assert taken == ({kind.scope, kind.other_scope} - {""} if kind.public else set()), kind


def test_a_first_name_is_sent_wherever_what_it_stands_for_is() -> None:
    assert not {first.__name__ for first in first_names.FIRST_NAMES} & {kind.__name__ for kind in KINDS}
    for first in first_names.FIRST_NAMES:
        assert all(kind.public for kind in first.stands_for)
        taken = {scope for scope in http_codec.SCOPES if first in http_codec.list_commands(scope)}
        assert taken == {kind.scope for kind in first.stands_for}
