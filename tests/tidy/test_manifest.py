"""The manifest of what guards PostgreSQL was written from the migrations that are here."""

import json

from interlock.store import inventory


def test_the_manifest_is_of_these_migrations() -> None:
    manifest = json.loads(inventory.MANIFEST.read_text(encoding="utf-8"))
    assert manifest["source"] == inventory.source_digest(), (
        "a migration or the inventory has changed since the manifest was written: run `python scripts/manifest.py`"
    )
