"""The numbered SQL files, for each of the two databases."""

import re
from pathlib import Path

SCHEMA = Path(__file__).parent / "schema"
# In this order: functions that tables use, tables, what is read of them, and what guards them.
PARTS = ("digest", "tables", "views", "job_event", "guard")

# What the tables of each database write in its own way. On SQLite a plain rowid would be used again after a delete; on
# PostgreSQL the digest of an act is the database's own word.
WORDS = {
    "sqlite": {
        "act_id": "INTEGER PRIMARY KEY AUTOINCREMENT", "ids": "TEXT", "hashes": "TEXT", "digest": "TEXT NOT NULL",
    },
    "postgres": {
        "act_id": "BIGINT PRIMARY KEY", "ids": "BIGINT[]", "hashes": "TEXT[]",
        "digest": "TEXT NOT NULL GENERATED ALWAYS AS (act_digest(id, tenant, path_digest, version, attempt, fence, at, "
        "actor, reason, cause, payload, available, worker, ttl, beat, until, units, before, leases, secrets, "
        "details)) STORED",
    },
}  # fmt: skip


def numbers() -> list[int]:
    """The migrations that there are."""
    return sorted({int(path.name[:4]) for path in SCHEMA.glob("*.sql")})


def sql(number: int, database: str) -> str:
    """The whole text of one migration for one database, as it is run."""
    files = (SCHEMA / f"{number:04}_{part}{kind}.sql" for part in PARTS for kind in ("", f".{database}"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.exists())
    for name, word in WORDS[database].items():
        text = text.replace(f"{{{name}}}", word)
    return as_strict(text) if database == "sqlite" else text


def as_strict(text: str) -> str:
    """The same tables for SQLite, which takes a value of any type in any column unless its table is STRICT.

    A strict table knows no BIGINT: INT has the same 64 bits. (INTEGER would make a primary key the rowid.) Bytes are
    a BLOB.
    """
    text = re.sub(r"\bBYTEA\b", "BLOB", re.sub(r"\bBIGINT\b", "INT", text))
    return re.sub(r"^\);$", ") STRICT;", text, flags=re.MULTILINE)
