"""The judge of histories tells what can be true from what cannot, and the sink what is late."""

import pytest

from interlock.kernel.commands import Finish, LeaseRef, LeaseStatus, Outcome, Submit, Submitted, Work
from interlock.testing import simulate
from interlock.testing.simulation.faults import KINDS
from interlock.testing.simulation.handlers import Sink
from interlock.testing.simulation.histories import NEVER, Observation, find_broken_histories, linearizable
from interlock.testing.simulation.net import Op
from interlock.testing.simulation.virtual_loop import Process

GRANT = Observation(1, 2, "granted", fence=1)
TAKEN = Observation(5, 6, "granted", fence=2)


@pytest.mark.parametrize(
    ("answers", "possible"),
    [
        ([GRANT, Observation(3, 4, "spoke", fence=1)], True),
        ([GRANT, TAKEN, Observation(7, 8, "spoke", fence=1)], False),  # heard after another had it
        ([GRANT, TAKEN, Observation(3, 8, "spoke", fence=1)], True),  # it may have been heard before
        ([GRANT, TAKEN, Observation(7, 8, "superseded", fence=1)], True),
        ([GRANT, Observation(3, 4, "superseded", fence=1), TAKEN], True),  # the other was granted to somebody without an answer
        ([GRANT, Observation(3, 4, "superseded", fence=1), Observation(7, 8, "spoke", fence=1)], False),
        ([TAKEN, Observation(7, 8, "granted", fence=1)], False),
        ([GRANT, Observation(3, 4, "spoke", fence=1, end="success"), Observation(5, 6, "spoke", fence=1)], False),
        ([GRANT, Observation(3, 4, "spoke", fence=1, end="success"), Observation(5, 6, "spoke", fence=1, end="success")], True),
        ([GRANT, Observation(3, 4, "spoke", fence=1, end="success"), Observation(5, 6, "spoke", fence=1, end="failure")], False),
        ([GRANT, Observation(3, 4, "over", fence=1), Observation(5, 6, "spoke", fence=1, end="success")], False),
        (  # what ended it got no answer, and is said again
            [GRANT, Observation(3, NEVER, "spoke", fence=1, end="success"), Observation(5, 6, "over", fence=1),
             Observation(7, 8, "spoke", fence=1, end="success")],
            True,
        ),
        ([Observation(1, 2, "saw", 3, "a"), Observation(3, 4, "saw", 2, "b")], False),  # a version that went back
        ([Observation(1, 4, "saw", 3, "a"), Observation(3, 5, "saw", 2, "b")], True),
        ([Observation(1, 2, "saw", 3, "a"), Observation(3, 4, "saw", 3, "b")], False),  # one version, two states
    ],
)  # fmt: skip
def test_what_clients_were_told_fits_an_order_or_not(answers: list[Observation], possible: bool) -> None:
    assert linearizable(answers) is possible
    assert linearizable(answers[::-1]) is possible


def test_a_history_is_read_from_what_was_said() -> None:
    held = LeaseRef(unit=1, fence=1, lease="x")

    def finish(at: int, ended: str, accepted: bool = True) -> Op:
        command = Finish(outcomes=(Outcome(held=held, ended=ended),))
        return Op(command, at, at + 1, [LeaseStatus(unit=1, accepted=accepted)])

    assert list(find_broken_histories([finish(1, "success"), finish(3, "success")])) == []
    assert len(list(find_broken_histories([finish(1, "success"), finish(3, "failure")]))) == 1


def test_a_key_makes_one_unit() -> None:
    def submit(at: int, unit: int, created: bool) -> Op:
        command = Submit(work=(Work(task="t", key="k"),))
        return Op(command, at, at + 1, [Submitted(unit=unit, created=created)])

    assert list(find_broken_histories([submit(1, 7, True), submit(3, 7, False)])) == []
    assert len(list(find_broken_histories([submit(1, 7, True), submit(3, 8, True)]))) == 1


def test_the_sink_refuses_what_is_late_and_tells_two_with_one_fence() -> None:
    sink, one, two = Sink(), Process("one"), Process("two")
    assert sink.write(1, 1, one)
    assert sink.write(1, 2, two)
    assert not sink.write(1, 1, one)
    assert (sink.late, sink.broken) == (1, [])
    sink.write(1, 2, one)
    assert len(sink.broken) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_fault_strikes(kind: str) -> None:
    reports = (simulate(seed, kinds=(kind,)) for seed in range(1, 9))
    report = next(filter(lambda one: one.struck[kind], reports))
    assert report.violations == []
    assert set(report.struck) == {kind}
    assert {where for _, where in report.cells} == {kind}
