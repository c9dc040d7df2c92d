"""The laws: what is true of the database at every commit, checked whole or after each change."""
