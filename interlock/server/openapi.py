"""The OpenAPI text, made from the operations and the lifecycles."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from interlock import __version__
from interlock.client import responses
from interlock.client.http_codec import ErrorResponse
from interlock.kernel.commands import REASONS
from interlock.kernel.lifecycle import Category, Lifecycle
from interlock.server.errors import CODES
from interlock.server.operations import JSON, Operation, run_lifecycles
from interlock.server.request_schemas import LIFECYCLES

ABOUT = "Durable work on explicit state machines. Fields may be added to responses; none is removed."
REF = "#/components/schemas/{name}"
STATUS_DESCRIPTIONS = {
    400: "The request is wrong; the message says what is wrong, and what is allowed.",
    401: "No API key, or one that is not valid.",
    403: "The key lacks the scope, or the person has no vote.",
    404: "There is nothing with this id in the tenant of the key.",
    409: "The present state does not allow this; `details` say what it allows.",
    413: "The body is larger than is allowed: 1 MiB, but for a blob.",
    415: "The body is not JSON.",
    416: "There are no bytes in this range.",
    429: "A limit is reached; try again later.",
    503: "The database does not answer; try again.",
}
# Schemas whose `state` or `status` is not a state of a lifecycle.
OTHER_STATES = tuple(
    kind.__name__ for kind in (responses.LeaseResponse, responses.KeyResponse, responses.HealthResponse)
)
OCTETS, BYTES = "application/octet-stream", {"type": "string", "format": "binary"}
EVENT_ID_DESCRIPTION = "With `Accept: text/event-stream`: the id of the last event that was seen."
RANGE = {"type": "string", "pattern": "^bytes=([0-9]{1,15}-[0-9]{0,15}|-[0-9]{1,15})$"}
RANGE_DESCRIPTION = "Which bytes: `bytes=0-99`, `bytes=100-` or `bytes=-100`."
KEY_SHAPE = {"type": "string", "pattern": "^[ -~]{1,200}$"}
KEY_DESCRIPTION = "The same request with the same key is carried out once; another request with that key is refused."


def build_openapi(operations: Sequence[Operation], lifecycles: Mapping[str, Lifecycle]) -> dict[str, Any]:
    """The whole text, as data."""
    types = [
        kind
        for operation in operations
        for kind in (operation.documented_body, operation.query, operation.response, *operation.other_responses)
        if kind is not None
    ]
    schemas, named = msgspec.json.schema_components([*types, ErrorResponse], ref_template=REF)
    of = dict(zip([*types, ErrorResponse], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = describe_operation(operation, of, named)
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


def describe_operation(operation: Operation, of: Mapping[Any, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """One operation: what it takes, and every answer that it may give."""
    described: dict[str, Any] = {
        "operationId": operation.name, "summary": operation.summary,
        "parameters": describe_parameters(operation, of, named),
        "responses": describe_responses(operation, of), "security": [] if operation.scope is None else [{"key": []}],
    }  # fmt: skip
    if operation.scope is not None:
        described["x-scope"] = operation.scope
    if operation.takes_bytes:
        described["requestBody"] = {"required": True, "content": {OCTETS: {"schema": BYTES}}}
    if operation.documented_body is not None:
        required = bool(named[of[operation.documented_body]["$ref"].rpartition("/")[2]].get("required"))
        described["requestBody"] = {"required": required, "content": {JSON: {"schema": of[operation.documented_body]}}}
    return described


def describe_parameters(operation: Operation, of: Mapping[Any, Any], named: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Describes the parameters of an operation."""
    text = {"type": "string", "minLength": 1}
    described: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": text}
        for name in re.findall(r"{(\w+)}", operation.path)
    ]
    if operation.query is not None:
        shape = named[of[operation.query]["$ref"].rpartition("/")[2]]
        described += [
            {"name": name, "in": "query", "required": False, "schema": schema}
            for name, schema in shape["properties"].items()
        ]
    if operation.ranges:
        range_header = {"schema": RANGE, "description": RANGE_DESCRIPTION}
        described.append({"name": "Range", "in": "header", "required": False, **range_header})
    if operation.streams:
        header = {
            "schema": {"type": "string", "pattern": operation.event_id},
            "description": EVENT_ID_DESCRIPTION,
        }
        described.append({"name": "Last-Event-ID", "in": "header", "required": False, **header})
    if operation.takes_key:
        described.append(
            {
                "name": "Idempotency-Key",
                "in": "header",
                "required": False,
                "schema": KEY_SHAPE,
                "description": KEY_DESCRIPTION,
            }
        )
    return described


def describe_responses(operation: Operation, of: Mapping[Any, Any]) -> dict[str, Any]:
    """Describes the responses of an operation."""
    media = operation.media.partition(";")[0]
    schema = (
        {"anyOf": [of[kind] for kind in (operation.response, *operation.other_responses)]}
        if operation.other_responses
        else of[operation.response]
    )
    done = {"description": operation.summary, "content": {media: {"schema": schema}}}
    if operation.streams:
        done["content"]["text/event-stream"] = {"schema": {"type": "string"}}  # type: ignore[index]
    if operation.ranges:
        done["content"] = {media: {"schema": BYTES}}
    described: dict[str, Any] = {str(status): done for status in (operation.status, *operation.other_statuses)}
    if 204 in operation.other_statuses:
        described["204"] = {"description": "The job has ended, and all its events were sent."}
    for status in list_error_statuses(operation):
        content = {JSON: {"schema": of[ErrorResponse]}}
        described[str(status)] = {
            "description": STATUS_DESCRIPTIONS[status],
            "content": content,
            "x-code": CODES[status],
        }
    return described


def list_error_statuses(operation: Operation) -> Iterable[int]:
    """The statuses of what an operation may refuse."""
    yield from (400, 503)
    if operation.scope is not None:
        yield from (401, 403, 429)
    if operation.has_parameter or operation.finds:
        yield 404
    if operation.changes:
        yield 409
    if operation.body is not None:
        yield from (413, 415)
    if operation.takes_bytes:
        yield 413
    if operation.ranges:
        yield 416


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
