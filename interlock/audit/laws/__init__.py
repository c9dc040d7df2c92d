"""The laws: what is true of the database at every commit, checked whole or after each change."""

from interlock.audit.laws.rows import Broken as Broken
from interlock.audit.laws.rows import audit as audit
