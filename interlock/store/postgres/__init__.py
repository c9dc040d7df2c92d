"""PostgreSQL: many writers with row locks, each tenant behind row-level security."""

from interlock.store.postgres.connection import PostgresConnection

__all__ = ["PostgresConnection"]
