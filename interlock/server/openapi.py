"""The OpenAPI text of the API, made from its operations and from the lifecycles."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from interlock import __version__
from interlock.client.http_codec import Faulty
from interlock.kernel.commands import REASONS
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.server.errors import CODES
from interlock.server.operations import JSON, Operation, run_lifecycles
from interlock.server.request_schemas import LIFECYCLES

ABOUT = "Durable work on explicit state machines. Fields may be added to answers, and none is taken away."
REF = "#/components/schemas/{name}"
SAID = {
    400: "Something in the request is wrong; the message says what, and what is allowed.",
    401: "No key was shown, or one that is not valid.",
    403: "The key lacks the scope, or the person has no vote.",
    404: "There is nothing under this id, as far as this key can see.",
    409: "The state of things does not allow it; details say what it does allow.",
    413: "The body is larger than 1 MiB.",
    415: "The body is no JSON.",
    429: "A limit of the tenant is reached; ask again later.",
    503: "The database does not answer; ask again.",
}
OTHER_STATES = ("LeaseTold", "KeyTold", "Health")  # whose state or status is not of a unit
SEEN = {"type": "string", "pattern": "^[0-9]{1,9}$"}
SEEN_SAID = "With `Accept: text/event-stream`: the id of the last event that was seen."
KEY_SHAPE = {"type": "string", "pattern": "^[ -~]{1,200}$"}
KEY_SAID = "The same request under the same key is carried out once and answered again; another one is refused."


def described(operations: Sequence[Operation], lifecycles: Mapping[str, Lifecycle]) -> dict[str, Any]:
    """The whole text, as data."""
    types = [
        kind for one in operations for kind in (one.body_told, one.query, one.answer, *one.shapes) if kind is not None
    ]
    shapes, named = msgspec.json.schema_components([*types, Faulty], ref_template=REF)
    of = dict(zip([*types, Faulty], shapes, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = operation(one, of, named)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Interlock", "version": __version__,
            "description": ABOUT,
        },
        "paths": paths,
        "components": {
            "schemas": add_enums(named, lifecycles),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "ilk_…"}},
        },
    }  # fmt: skip


def operation(one: Operation, of: Mapping[Any, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """One operation: what it takes, and every answer that it may give."""
    found: dict[str, Any] = {
        "operationId": one.name, "summary": one.summary, "parameters": parameters(one, of, named),
        "responses": responses(one, of), "security": [] if one.scope is None else [{"key": []}],
    }  # fmt: skip
    if one.scope is not None:
        found["x-scope"] = one.scope
    if one.body_told is not None:
        required = bool(named[of[one.body_told]["$ref"].rpartition("/")[2]].get("required"))
        found["requestBody"] = {"required": required, "content": {JSON: {"schema": of[one.body_told]}}}
    return found


def parameters(one: Operation, of: Mapping[Any, Any], named: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = {"type": "string", "minLength": 1}
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": text} for name in re.findall(r"{(\w+)}", one.path)
    ]
    if one.query is not None:
        shape = named[of[one.query]["$ref"].rpartition("/")[2]]
        found += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in shape["properties"].items()
        ]
    if one.streams:
        said = {"schema": SEEN, "description": SEEN_SAID}
        found.append({"name": "Last-Event-ID", "in": "header", "required": False, **said})
    if one.takes_key:
        found.append(
            {"name": "Idempotency-Key", "in": "header", "required": False, "schema": KEY_SHAPE, "description": KEY_SAID}
        )
    return found


def responses(one: Operation, of: Mapping[Any, Any]) -> dict[str, Any]:
    media = one.media.partition(";")[0]
    told_as = {"anyOf": [of[kind] for kind in (one.answer, *one.shapes)]} if one.shapes else of[one.answer]
    done = {"description": one.summary, "content": {media: {"schema": told_as}}}
    if one.streams:
        done["content"]["text/event-stream"] = {"schema": {"type": "string"}}  # type: ignore[index]
    told: dict[str, Any] = {str(status): done for status in (one.status, *one.also)}
    if 204 in one.also:
        told["204"] = {"description": "Everything was seen, and it has ended: ask no more."}
    for status in refusals(one):
        content = {JSON: {"schema": of[Faulty]}}
        told[str(status)] = {"description": SAID[status], "content": content, "x-code": CODES[status]}
    return told


def refusals(one: Operation) -> Iterable[int]:
    """The statuses of what an operation may refuse."""
    yield from (400, 503)
    if one.scope is not None:
        yield from (401, 403, 429)
    if one.by_id or one.finds:
        yield 404
    if one.changes:
        yield 409
    if one.body is not None:
        yield from (413, 415)


def add_enums(named: Mapping[str, Any], lifecycles: Mapping[str, Lifecycle]) -> dict[str, Any]:
    """Returns the schemas with the words of the lifecycles in them: names, states and categories."""
    states = list(dict.fromkeys(state for lifecycle in lifecycles.values() for state in lifecycle.states))
    words = {"lifecycle": list(lifecycles), "category": list(map(str, Category)), "state": states, "status": states}
    by_kind = {
        "submitted": [lifecycle.name for lifecycle in lifecycles.values() if lifecycle.birth.trigger == "submit"],
        "run": list(run_lifecycles(lifecycles)),
    }
    for name, schema in named.items():
        for field, allowed in words.items():
            if field in schema.get("properties", {}) and name not in OTHER_STATES:
                restrict(schema["properties"][field], allowed, by_kind)
    return {**named, "ReasonCode": {"type": "string", "enum": list(REASONS)}}


def restrict(schema: dict[str, Any], allowed: Sequence[str], by_kind: Mapping[str, Sequence[str]]) -> None:
    """Restricts the text that a schema means to these words, or to those of the kind that the schema names."""
    for part in [schema, *schema.get("anyOf", ()), schema.get("items", {})]:
        if part.get("type") == "string":
            for bound in ("minLength", "maxLength", "pattern"):
                part.pop(bound, None)
            part["enum"] = list(by_kind.get(part.pop(LIFECYCLES, ""), allowed))
