"""The numbered SQL files, as they are run on each database."""

import re
from pathlib import Path

SCHEMA = Path(__file__).parent / "schema"


def numbers() -> list[int]:
    """The migrations that there are."""
    return sorted({int(path.name[:4]) for path in SCHEMA.glob("*.sql")})


def sql(number: int, database: str, pos: str) -> str:
    """The whole text of one migration for one database, as it is run."""
    files = sorted(SCHEMA.glob(f"{number:04}_*.sql"), reverse=True)  # tables before views, and both before their guard
    wanted = [path for path in files if path.suffixes[0] in (".sql", f".{database}")]
    text = "\n".join(path.read_text(encoding="utf-8").replace("{pos}", pos) for path in wanted)
    return as_strict(text) if database == "sqlite" else text


def as_strict(text: str) -> str:
    """The same tables for SQLite, which takes a value of any type in any column unless its table is STRICT.

    A strict table knows no BIGINT: INT has the same 64 bits. (INTEGER would make a primary key the rowid.)
    """
    return re.sub(r"^\);$", ") STRICT;", re.sub(r"\bBIGINT\b", "INT", text), flags=re.MULTILINE)
