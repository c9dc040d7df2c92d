"""The laws: statements that are true of the database at every commit."""

from interlock.audit.laws.rows import Broken as Broken
from interlock.audit.laws.rows import audit as audit
