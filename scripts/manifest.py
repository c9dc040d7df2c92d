"""Writes what guards a fresh PostgreSQL database to interlock/store/schema/manifest.postgres.json."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from interlock.lifecycles import shipped
from interlock.store import inventory, migrate
from interlock.store.postgres import PostgresConnection
from tests.postgres.server import postgres as started_server


def main() -> None:
    with started_server() as url:
        connection = PostgresConnection(url)
        migrate.upgrade(connection, shipped().values())
        items = {name: item.digest for name, item in sorted(inventory.read_items(connection).items())}
        connection.close()
    manifest = {"source": inventory.source_digest(), "items": items}
    inventory.MANIFEST.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"{len(items)} items in {inventory.MANIFEST.name}\n")


if __name__ == "__main__":
    main()
