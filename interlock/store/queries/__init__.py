"""The SELECT statements: for verbs inside a transaction, for people, and for the audit."""
