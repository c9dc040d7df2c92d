"""What a client of the first version was promised is still there: fields and routes are added, and none taken away."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.server.stage import Stage

PROMISED = Path(__file__).parent / "v1.json"  # written once, when the API was called v1; lines are only ever added


def promises(text: dict[str, Any]) -> dict[str, Any]:
    """What a client may rely on: every route, what it must be told and may be told, and each field of its answers."""
    schemas = text["components"]["schemas"]
    found = {}
    for path, methods in text["paths"].items():
        for method, one in methods.items():
            body = one.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
            done = next(answer for status, answer in one["responses"].items() if status.startswith("2"))
            told = done.get("content", {}).get("application/json", {}).get("schema")
            found[f"{method.upper()} {path}"] = {
                "scope": one.get("x-scope"),
                "takes": sorted(fields(body, schemas)) + [each["name"] for each in one["parameters"]],
                "must": sorted(named(body, schemas).get("required", ())),
                "tells": fields(told, schemas),
            }
    return found


def named(schema: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    first = (schema or {}).get("anyOf", [schema])[0]  # others are for whoever asks for them
    where = (first or {}).get("$ref", "")
    found: dict[str, Any] = schemas[where.rpartition("/")[2]] if where else {}
    return found


def fields(schema: Any, schemas: dict[str, Any], depth: int = 3) -> dict[str, Any]:
    """The fields of an object, each with its kind; of objects within, their own."""
    found = {}
    for name, one in named(schema, schemas).get("properties", {}).items():
        inner = one.get("items", one)
        found[name] = fields(inner, schemas, depth - 1) if "$ref" in inner and depth else kind(one)
    return found


def kind(schema: dict[str, Any]) -> list[str]:
    parts = [schema, *schema.get("anyOf", ())]
    return sorted({part["type"] for part in parts if "type" in part})


def taken_away(before: Any, now: Any, where: str = "") -> list[str]:
    """What was promised and is gone."""
    if isinstance(before, dict) and isinstance(now, dict):
        gone = [f"{where}/{name}" for name in before if name not in now]
        return gone + [
            fault for name in before if name in now for fault in taken_away(before[name], now[name], f"{where}/{name}")
        ]
    if where.endswith("/takes"):
        return [f"{where}/{name}" for name in before if name not in now]
    if where.endswith("/must"):
        return [f"{where}/{name}" for name in now if name not in before]
    return [] if before == now else [f"{where}: {before} -> {now}"]


@pytest.mark.req("R2-55")
def test_nothing_that_was_promised_is_taken_away(stage: Stage) -> None:
    now = promises(stage.ask("GET", "/openapi.json", key="").json())
    assert taken_away(json.loads(PROMISED.read_text(encoding="utf-8")), now) == []


def test_what_is_taken_away_is_seen() -> None:
    before = {
        "GET /a": {"scope": "read", "takes": ["x"], "must": [], "tells": {"id": ["string"], "in": {"n": ["integer"]}}}
    }
    more = {
        "scope": "read",
        "takes": ["x", "y"],
        "must": [],
        "tells": {"id": ["string"], "in": {"n": ["integer"]}, "new": ["null"]},
    }
    assert taken_away(before, {"GET /a": more, "GET /b": more}) == []
    for change in (
        {"takes": []},
        {"must": ["x"]},
        {"tells": {"id": ["string"]}},
        {"scope": "admin"},
        {"tells": {"id": ["integer"], "in": {"n": ["integer"]}}},
    ):
        assert taken_away(before, {"GET /a": {**more, **change}}), change
    assert taken_away(before, {}) == ["/GET /a"]
