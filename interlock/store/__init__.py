"""All SQL: the schema, the guard inside the database, and the two drivers."""
