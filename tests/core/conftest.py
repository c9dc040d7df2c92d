"""What the core's own parts promise each other runs on the three databases, as the stories of the engine do."""

from tests.engine.conftest import world as world
