"""What the statements of a graph read, while the server knows nothing of how many rows there are."""

from pathlib import Path

import pytest

from interlock.kernel.commands import Claim, Finish, LeaseGrant, LeaseRef, Outcome, Register, Start, Submit, Work
from interlock.lifecycles import shipped
from interlock.plugins import make_engine
from tests.store.databases import fresh
from tests.store.filling import watched

LAYER, LAYERS, NEEDS = 300, 6, 12


def hold(grant: LeaseGrant) -> LeaseRef:
    return LeaseRef(unit=grant.unit, fence=grant.fence, lease=grant.lease)


@pytest.mark.parametrize("role", ["ordinary", "postgres"])
def test_no_statement_of_a_graph_reads_all_units(tmp_path: Path, server: str, role: str) -> None:
    """A join may be planned from its other end: with all units that succeeded, or all leases.

    Which end looks cheaper depends on how much there is, and on the filter of tenants, which a superuser has not.
    """
    with fresh("postgres", tmp_path, server, role=role) as connection:
        engine = make_engine(connection, shipped())
        above: list[int] = []
        for _ in range(LAYERS):
            works = [
                Work(task="node", after=tuple(above[n - needed] for needed in range(NEEDS)) if above else ())
                for n in range(LAYER)
            ]
            above = [made.unit for made in engine.send(Submit(work=tuple(works)))]
        worker = engine.send(Register(name="w", incarnation="1", capacity=LAYER))
        for number in range(LAYERS):
            with watched(connection) as reads:
                grants = engine.send(Claim(worker=worker, key=f"c{number}", nonce=f"{number:0>16}", limit=LAYER))
                engine.send(Start(held=tuple(map(hold, grants))))
                ends = [Outcome(held=hold(grant)) for grant in grants]
                if number == LAYERS - 2:  # what needs it is lost
                    ends[0] = Outcome(held=ends[0].held, ended="failure", error="broken", error_class="PermanentError")
                answers = engine.send(Finish(outcomes=tuple(ends)))
            assert [answer.accepted for answer in answers] == [True] * len(grants)
            assert [(read.sql, read.whole) for read in reads if read.whole] == []
        assert len(grants) == LAYER - NEEDS
