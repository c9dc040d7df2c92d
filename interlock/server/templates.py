"""Templates over the wire: the steps of workflows, by name and version."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from interlock.client import json_views
from interlock.kernel.commands import DefineTemplate, Work
from interlock.kernel.errors import Unknown
from interlock.kernel.workflow_graph import Template
from interlock.server.operations import Asked, Operation
from interlock.server.request_schemas import MANY, Count, Name, StepAsked, Strict, work_of
from interlock.store.queries.views import template_seen, templates_of

STEP = "step"


class TemplateAsked(Strict, frozen=True, kw_only=True):
    """The steps of a template; each has its name as `ref`, and without `needs` it needs the one before it."""

    name: Name
    steps: Annotated[tuple[StepAsked, ...], Meta(min_length=1, max_length=MANY)]


class TemplateMeant(Strict, frozen=True, kw_only=True):
    """The newest version, unless one is named."""

    version: Count | None = None


class TemplateStep(msgspec.Struct):
    """A step; those that are templates themselves name the version."""

    name: str
    task: str
    lifecycle: str
    queue: str
    needs: list[str]
    when: str | None
    template: str | None
    template_version: int | None


class TemplateTold(msgspec.Struct):
    """One version of a template."""

    name: str
    version: int
    defined_at: str | None
    steps: list[TemplateStep]


class TemplateList(msgspec.Struct):
    """The newest version of each template."""

    templates: list[TemplateTold]


class TemplateDefined(msgspec.Struct):
    """The version that has these steps, and whether it is new."""

    name: str
    version: int
    changed: bool


def told(one: Template) -> TemplateTold:
    steps = [
        TemplateStep(
            step.ref, step.task, step.lifecycle, step.queue, [str(need) for need in step.needs], step.when,
            step.template, step.template_version,
        )
        for step in msgspec.json.decode(one.steps, type=list[Work])
    ]  # fmt: skip
    return TemplateTold(one.name, one.version, json_views.instant(one.defined_at), steps)


async def templates(asked: Asked) -> TemplateList:
    return TemplateList([told(one) for one in await asked.read(templates_of)])


async def template(asked: Asked) -> TemplateTold:
    found = await asked.read(template_seen, asked.path["name"], asked.query.version)
    if found is None:
        raise Unknown(asked.path["name"])
    return told(found)


async def define(asked: Asked) -> TemplateDefined:
    """The newest version of the template has these steps; said again, nothing changes."""
    body: TemplateAsked = asked.body
    done = await asked.send(DefineTemplate(name=body.name, steps=tuple(steps_of(body))))
    return TemplateDefined(done.name, done.version or 1, done.changed)


def steps_of(body: TemplateAsked) -> list[Work]:
    work, refs = list[Work](), list[str]()
    for step in body.steps:
        ref = step.ref or step.task
        needs: Any = step.needs if step.needs is not None else tuple(refs[-1:])
        named = msgspec.structs.replace(step, ref=ref, needs=needs)
        work.append(work_of(named, step.lifecycle or STEP, None))
        refs.append(ref)
    return work


TEMPLATES = (
    Operation(
        method="GET", path="/v1/templates", scope="read", summary="List templates", call=templates, answer=TemplateList,
    ),
    Operation(
        method="GET", path="/v1/templates/{name}", scope="read", summary="Show a version of a template", call=template,
        query=TemplateMeant, answer=TemplateTold,
    ),
    Operation(
        method="POST", path="/v1/templates", scope="operate", summary="Give a template these steps", call=define,
        body=TemplateAsked, answer=TemplateDefined,
    ),
)  # fmt: skip
