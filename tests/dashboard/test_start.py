"""Starting a job or a run from a form: every kind of field, what is wrong with it in place, and once per form."""

from typing import Any, Literal
from urllib.parse import urlencode

import msgspec
import pytest

from interlock.client.app import App
from interlock.dashboard.start_pages import Field, check_fields, fill_fields, list_run_fields, make_field, parse_field
from interlock.kernel.parameters import Parameter
from interlock.server.errors import ApiError
from tests.dashboard.visitor import Forms, Visitor
from tests.server.stage import Stage

HOSTILE = "\"><script>alert(1)</script><b onmouseover=x>\u202e'&lt;"


def store(stage: Stage) -> None:
    with App(stage.app.url) as app:

        @app.task
        def mail(
            to: str, copies: int = 1, tone: Literal["warm", "dry"] = "warm", urgent: bool = False,
            tags: list[str] | None = None, extra: dict[str, Any] | None = None, share: float | None = None,
        ) -> None: ...  # fmt: skip

        @app.task
        def ship(order: int, mail: Any) -> None: ...

        app.workflow("deliver", [mail, ship])
        app.store_definitions()


def field(name: str, kinds: tuple[str, ...], text: str = "", required: bool = True) -> Field:
    return make_field({"name": name, "kinds": kinds, "required": required, "text": text})


@pytest.mark.parametrize(
    ("kinds", "typed", "value"),
    [
        (("text",), "7", "7"), (("text",), " a ", " a "), (("integer",), " 7 ", 7), (("integer",), "-0", 0),
        (("number",), "1.5e3", 1500.0), (("number",), "2", 2), (("boolean",), "true", True),
        (("integer", "null"), "", None), (("text", "number"), "1.5", 1.5), (("text", "number"), "soon", "soon"),
        (("list",), '["a"]', ["a"]), (("object",), "{}", {}), (("any",), '"x"', "x"), (("any",), "null", None),
        (("text", "list"), "[1]", [1]), (("text", "list"), "[1", "[1"), (("text",), HOSTILE, HOSTILE),
    ],
)  # fmt: skip
def test_what_is_typed_becomes_a_value_of_the_kind_that_is_taken(kinds: Any, typed: str, value: Any) -> None:
    parsed = parse_field(field("f", kinds), typed)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("kinds", "typed", "words"),
    [
        (("text",), "", "is missing"), (("integer",), "7.5", "allowed is integer"),
        (("integer",), "1" * 99, "allowed is integer"), (("integer",), "0x1", "allowed is integer"),
        (("number",), "nan", "allowed is number"), (("number",), "1" * 999, "allowed is number"),
        (("boolean",), "yes", "allowed are true, false"), (("list",), "{}", "allowed is list"),
        (("object",), "{", "no JSON"), (("any",), "[" * 5000, "allowed is JSON"), (("null",), "x", "not allowed"),
    ],
)  # fmt: skip
def test_what_is_not_taken_is_told_what_is_allowed(kinds: Any, typed: str, words: str) -> None:
    with pytest.raises(ApiError, match=words):
        parse_field(field("f", kinds), typed)


def test_choices_and_defaults_are_read_from_the_text_of_a_parameter() -> None:
    for text, options, default in (
        ("m: Literal['a', 'b'] = 'a'", ('"a"', '"b"'), "'a'"), ("m: typing.Literal[1, 2]", ("1", "2"), None),
        ("m: Literal['a'] | None = None", ('"a"',), "None"), ("m: int = 3", (), "3"), ("m: str", (), None),
        ("m: x.Colour = <Colour.RED: 1>", (), None), ("m: Literal[x]", (), None), ("", (), None),
        ("m): ...\nimport os\ndef g(x", (), None), ("m: int, n: int", (), None), ("m: " + "(" * 500, (), None),
    ):  # fmt: skip
        made = field("m", ("text",), text, required=default is None)
        assert (made.options, made.default) == (options, default), text
    chosen = field("m", ("text",), "m: Literal['a', 'b'] = 'a'", required=False)
    assert parse_field(chosen, '"b"') == "b"
    assert parse_field(chosen, "") is msgspec.UNSET
    with pytest.raises(ApiError, match="allowed are"):
        parse_field(chosen, '"c"')


def test_a_run_takes_what_its_steps_take_and_no_step_gives() -> None:
    def task(*parameters: Parameter) -> Any:
        return {"parameters": msgspec.to_builtins(parameters)}

    steps = [{"name": "build", "task": "b", "when": None}, {"name": "ship", "task": "s", "when": None}]
    tasks = {
        "b": task(Parameter("ref", ("text",), required=False)),
        "s": task(Parameter("build"), Parameter("ref", ("text",))),
    }
    fields, is_open = list_run_fields(steps, tasks)
    assert ([(each.name, each.required) for each in fields], is_open) == ([("ref", True)], False)
    assert list_run_fields(steps, {"b": tasks["b"]})[1]
    assert list_run_fields([{**steps[0], "when": "x"}], tasks)[1]


def test_earlier_arguments_are_typed_so_that_they_are_read_again() -> None:
    fields = [
        field("a", ("text",)),
        field("b", ("integer",)),
        field("c", ("any",)),
        field("d", ("boolean",), required=False),
    ]
    given = {"a": "x", "b": 7, "c": {"n": ["x"]}, "d": True}
    typed = fill_fields(fields, given)
    assert check_fields(fields, typed) == (given, {})


def test_a_job_is_started_once_from_the_form_of_a_task(visitor: Visitor, stage: Stage) -> None:
    store(stage)
    listed = visitor.open("/ui/start")
    assert "/ui/start/form?task=mail" in listed.links
    page = visitor.open("/ui/start/form?task=mail")
    form = page.find("/ui/start/form")
    assert {"arg.to", "arg.copies", "arg.tone", "arg.urgent", "arg.tags", "arg.extra", "arg.share"} <= form[
        "fields"
    ].keys()
    assert [own["value"] for tag, own in page.tags if tag == "option" and own.get("value")] == []
    sent = {**form["fields"], "arg.to": "ann", "arg.copies": "2", "arg.tone": '"dry"', "arg.urgent": "true",
            "arg.tags": '["a"]', "arg.share": "0.5"}  # fmt: skip
    (place,) = {visitor.send("POST", form["action"], data=sent).headers["location"] for _ in range(2)}  # a double click
    job = stage.get(f"/v1/jobs/{place.rpartition('/')[2]}")
    assert job["input"] == {"to": "ann", "copies": 2, "tone": "dry", "urgent": True, "tags": ["a"], "share": 0.5}
    assert job["task"] == "mail"
    whole = {**form["fields"], "form_key": "other", "input": '{"to": "ben"}'}
    place = visitor.send("POST", form["action"], data=whole).headers["location"]
    assert stage.get(f"/v1/jobs/{place.rpartition('/')[2]}")["input"] == {"to": "ben"}


def test_what_is_wrong_is_said_beside_its_field_and_what_was_typed_stays(visitor: Visitor, stage: Stage) -> None:
    store(stage)
    form = visitor.open("/ui/start/form?task=mail").find("/ui/start/form")
    sent = {**form["fields"], "arg.to": "", "arg.copies": "many", "arg.extra": '{"a"', "arg.share": HOSTILE}
    answer = visitor.send("POST", form["action"], data=sent)
    page = Forms(answer.text)
    assert answer.status_code == 400
    assert "4 fields are wrong: to, copies, extra, share" in page.text
    invalid = [own["id"] for _, own in page.tags if own.get("aria-invalid") == "true"]
    assert invalid == ["arg.to", "arg.copies", "arg.extra", "arg.share"]
    assert "'many' is not allowed; allowed is integer" in page.text
    assert page.find("/ui/start/form")["fields"]["arg.copies"] == "many"
    assert "<script>alert" not in answer.text
    for more, words in (
        ({"input": '{"to"'}, "no JSON"), ({"input": '{"of": 1}'}, "of"), ({"input": "[" * 9000}, "no JSON"),
        ({"arg.to": "a\0b"}, "NUL"), ({"arg.to": "x", "task": ""}, "name a task"),
        ({"arg.to": "x", "key": "k" * 999}, "key"),
    ):  # fmt: skip
        refused = visitor.send("POST", form["action"], data={**form["fields"], "form_key": words, **more})
        assert refused.status_code == 400, more
        assert words in Forms(refused.text).text
    assert stage.get("/v1/jobs")["jobs"] == []
    assert visitor.open("/ui/start/form?task=none", 404).text
    assert "name a task" in visitor.open("/ui/start/form", 400).text
    assert visitor.send("POST", form["action"], data={"task": "mail", "arg.to": "x"}).status_code == 403


def test_a_run_is_started_from_the_form_of_a_workflow(visitor: Visitor, stage: Stage) -> None:
    store(stage)
    assert "/ui/start/form?workflow=deliver" in visitor.open("/ui/start").links
    form = visitor.open("/ui/start/form?workflow=deliver").find("/ui/start/form")
    assert "arg.order" in form["fields"]
    assert "arg.mail" not in form["fields"]  # a step gives it
    sent = {**form["fields"], "arg.to": "ann", "arg.order": "7"}
    (place,) = {visitor.send("POST", form["action"], data=sent).headers["location"] for _ in range(2)}
    run = stage.get(f"/v1/runs/{place.rpartition('/')[2]}")
    assert (run["task"], run["input"]) == ("deliver", {"to": "ann", "order": 7})
    assert place.startswith("/ui/runs/")


def test_what_has_ended_is_started_again_with_other_input(visitor: Visitor, stage: Stage) -> None:
    store(stage)
    dead = stage.job(input={"to": "ann", "tags": ["x"]}, attempts=1)
    assert f"/ui/start/form?task=mail&again={dead}" not in visitor.open(f"/ui/jobs/{dead}").links
    stage.finish(stage.claim(), ended="failure", error="it broke")
    (link,) = [link for link in visitor.open(f"/ui/jobs/{dead}").links if "again=" in link]
    form = visitor.open(link).find("/ui/start/form")
    assert form["fields"]["arg.to"] == "ann"
    sent = {**form["fields"], "arg.to": "ben", "arg.tags": '["x"]'}
    place = visitor.send("POST", form["action"], data=sent).headers["location"]
    job = stage.get(f"/v1/jobs/{place.rpartition('/')[2]}")
    assert (job["input"], job["retry_of"]) == ({"to": "ben", "tags": ["x"]}, dead)
    unknown = stage.job(task=HOSTILE, input=[HOSTILE], queue="q")  # of a task that nobody has stored
    stage.post(f"/v1/jobs/{unknown}/cancel", {})
    page = visitor.get(f"/ui/start/form?{urlencode([('task', HOSTILE), ('again', unknown)])}")
    assert "It takes anything." in page
    assert "<script>alert" not in page
    assert "\u202e" not in Forms(page).text
    run = stage.run()
    step = stage.get(f"/v1/runs/{run}/steps")["steps"][0]["id"]
    assert "not started by itself" in visitor.open(f"/ui/start/form?task=mail&again={step}", 400).text
    assert visitor.open("/ui/start/form?task=mail&again=job_zzzz", 404).text
