"""All SQL: the schema, the guard inside the database, and how to reach the two databases."""
