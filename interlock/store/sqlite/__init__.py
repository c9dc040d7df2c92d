"""SQLite: one file, no set-up, one writer at a time."""

from interlock.store.sqlite.connection import SqliteConnection
from interlock.store.sqlite.driver import MEMORY

__all__ = ["MEMORY", "SqliteConnection"]
