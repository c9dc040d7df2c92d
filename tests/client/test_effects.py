"""Calls to the outside: recorded before and after, and never repeated in silence."""

from typing import Any

import pytest

import interlock
from interlock import InterlockError
from interlock.store.queries.views import children_of, view
from interlock.testing import Stage


class Bank:
    """An outside that counts what it was asked, and a worker that may be lost right after a call."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.charges: list[str] = []
        self.lose_after = 0  # so many calls more are made, then the worker is lost

    def charge(self) -> str:
        self.charges.append(f"charge {len(self.charges) + 1}")
        if self.lose_after:
            self.lose_after -= 1
            if not self.lose_after:
                self.stage.lose_worker()
        return self.charges[-1]

    def find(self) -> str | None:
        return self.charges[-1] if self.charges else None


@pytest.fixture
def bank(stage: Stage) -> Bank:
    return Bank(stage)


def paying(bank: Bank, **terms: Any) -> interlock.Task[..., Any]:
    @bank.stage.app.task
    def pay(ctx: interlock.Context) -> str:
        return "paid by " + ctx.effect("charge", bank.charge, **terms)

    return pay


def begin_and_lose(bank: Bank, task: interlock.Task[..., Any], *, of_a_run: bool = False) -> interlock.Job:
    """A job whose worker was lost between the call and the record of its result, and that was tried again since."""
    bank.lose_after = 1
    made = bank.stage.app.workflow("flow", steps=[task]) if of_a_run else task
    job: interlock.Job = made.submit()
    bank.stage.drain()
    bank.stage.advance("10m")
    bank.stage.drain()
    return job


def test_a_call_is_made_once_and_its_result_is_kept(bank: Bank) -> None:
    @bank.stage.app.task
    def pay(ctx: interlock.Context) -> str:
        result: str = ctx.effect("charge", bank.charge)
        ctx.sleep("between", "1h")
        return result

    job = pay.submit()
    bank.stage.drain()
    bank.stage.advance("1h")
    assert job.wait() == "charge 1"
    assert bank.charges == ["charge 1"]


@pytest.mark.parametrize("is_async", [True, False])
def test_a_name_stands_for_one_call_of_an_attempt(bank: Bank, is_async: bool) -> None:
    """The second call would be left out without a word, as if it had been made."""

    def pay(ctx: interlock.Context) -> list[str]:
        return [ctx.effect("charge", bank.charge), ctx.effect("charge", bank.charge)]

    async def pay_async(ctx: interlock.Context) -> list[str]:
        return [await ctx.effect("charge", bank.charge), await ctx.effect("charge", bank.charge)]

    task: interlock.Task[..., Any] = bank.stage.app.task(pay_async if is_async else pay)
    with pytest.raises(interlock.Failed, match="the effect 'charge' is there twice in this attempt, and a name stands"):
        task.submit().wait()
    assert bank.charges == ["charge 1"]


def test_a_call_that_surely_had_no_effect_may_be_made_again_in_its_attempt(bank: Bank) -> None:
    def refuse() -> str:
        raise interlock.NotDone("the bank is closed")

    @bank.stage.app.task
    def pay(ctx: interlock.Context) -> str:
        try:
            return str(ctx.effect("charge", refuse))
        except interlock.NotDone:
            return str(ctx.effect("charge", bank.charge))

    assert pay.submit().wait() == "charge 1"


def test_a_check_says_that_the_call_took_place(bank: Bank) -> None:
    job = begin_and_lose(bank, paying(bank, check=bank.find))
    assert job.wait() == "paid by charge 1"
    assert bank.charges == ["charge 1"]


def test_a_check_says_that_the_call_did_not_take_place(bank: Bank) -> None:
    job = begin_and_lose(bank, paying(bank, check=lambda: None))
    assert job.wait() == "paid by charge 2"


@pytest.mark.parametrize("of_a_run", [True, False])
def test_without_a_check_a_person_says_that_it_happened(bank: Bank, of_a_run: bool) -> None:
    job = begin_and_lose(bank, paying(bank), of_a_run=of_a_run)
    assert bank.charges == ["charge 1"]  # nothing was called again
    (item,) = bank.stage.app.inbox()
    assert (item.task, item.words) == ("charge", ("happened", "not_done", "stop"))
    bank.stage.advance("30d")
    assert bank.charges == ["charge 1"]
    item.decide("happened", data="charge 1, as the bank says", by="ann")
    result = job.wait()
    assert (result["pay"] if of_a_run else result) == "paid by charge 1, as the bank says"
    assert bank.charges == ["charge 1"]


def test_a_person_says_that_it_did_not_happen(bank: Bank) -> None:
    job = begin_and_lose(bank, paying(bank))
    bank.stage.app.inbox()[0].decide("not_done", by="ann")
    assert job.wait() == "paid by charge 2"


def test_each_call_of_which_nothing_is_known_has_its_own_question(bank: Bank) -> None:
    job = begin_and_lose(bank, paying(bank))
    bank.lose_after = 1
    bank.stage.app.inbox()[0].decide("not_done", by="ann")
    bank.stage.drain()
    bank.stage.advance("10m")
    bank.stage.drain()
    assert len(bank.charges) == 2
    (item,) = bank.stage.app.inbox()
    item.decide("happened", data="charge 2", by="ann")
    assert job.wait() == "paid by charge 2"
    assert len(bank.charges) == 2


def test_a_person_stops_it(bank: Bank) -> None:
    job = begin_and_lose(bank, paying(bank))
    bank.stage.app.inbox()[0].decide("stop", by="ann")
    with pytest.raises(
        interlock.Failed, match="the effect 'charge' is not known to have happened, and ann has stopped"
    ):
        job.wait()
    assert bank.charges == ["charge 1"]


def test_a_call_that_raises_is_not_repeated_in_silence(bank: Bank) -> None:
    @bank.stage.app.task(backoff="1s")
    def pay(ctx: interlock.Context) -> str:
        def call() -> str:
            bank.charge()
            raise TimeoutError("no answer")

        return ctx.effect("charge", call)

    job = pay.submit()
    bank.stage.drain()
    bank.stage.advance("10m")
    bank.stage.drain()
    assert bank.charges == ["charge 1"]
    assert "waits until its child" in bank.stage.app.why(job.unit)


def test_a_call_that_surely_had_no_effect_is_tried_again(bank: Bank) -> None:
    @bank.stage.app.task(backoff="1s")
    def pay(ctx: interlock.Context) -> str:
        def call() -> str:
            if len(bank.charges) < 2:
                bank.charges.append("refused")
                raise interlock.NotDone("try later")
            return "accepted"

        return ctx.effect("charge", call)

    job = pay.submit()
    bank.stage.drain()
    bank.stage.advance("10m")
    assert job.wait() == "accepted"
    assert bank.charges == ["refused", "refused"]
    assert bank.stage.app.read(children_of, job.unit) == []


def test_an_async_handler_has_effects_too(bank: Bank) -> None:
    @bank.stage.app.task
    async def pay(ctx: interlock.Context) -> str:
        async def call() -> str:
            return bank.charge()

        async def find() -> str | None:
            return bank.find()

        return await ctx.effect.aio("charge", call, check=find) + await ctx.effect.aio("tip", call)

    job = pay.submit()
    assert job.wait() == "charge 1charge 2"


def test_data_are_refused_where_they_mean_nothing(bank: Bank) -> None:
    begin_and_lose(bank, paying(bank))
    (item,) = bank.stage.app.inbox()
    with pytest.raises(InterlockError, match="data are not allowed with 'not_done'"):
        item.decide("not_done", data=3)
    flow = bank.stage.app.workflow("gated", steps=[interlock.approval("ship")])
    run = flow.submit()
    with pytest.raises(InterlockError, match="data are not allowed with 'approve' here"):
        bank.stage.app.inbox.find(run.unit, "approve").decide("approve", data=3)


def test_a_job_that_is_cancelled_takes_its_question_along(bank: Bank) -> None:
    job = begin_and_lose(bank, paying(bank))
    job.cancel()
    assert bank.stage.app.inbox() == []
    (below,) = bank.stage.app.read(children_of, job.unit)
    assert bank.stage.app.read(view, below.unit.id).unit.state == "cancelled"
