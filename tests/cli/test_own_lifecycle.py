"""A user's own lifecycle file, by the command alone."""

import json
from pathlib import Path

from tests.conftest import Run
from tests.lifecycles.sample import PARCEL


def test_units_of_a_users_own_lifecycle_by_the_command(tmp_path: Path, interlock: Run) -> None:
    (tmp_path / "parcel.toml").write_text(PARCEL)
    own, db = ("--lifecycles", str(tmp_path / "parcel.toml")), ("--db", f"sqlite:///{tmp_path}/work.db")
    assert interlock(*own, "db", "upgrade", *db).returncode == 0
    made = interlock(*own, "submit", "book", "--lifecycle", "parcel", *db, "--json")
    assert made.returncode == 0, made.stderr
    unit = json.loads(made.stdout)["id"]
    assert unit.startswith("parcel_")
    why = interlock(*own, "why", unit, *db)
    assert "packed" in why.stdout, why.stdout + why.stderr
    assert interlock(*own, "force", unit, "returned", "--reason", "test", *db).returncode == 0
    assert interlock(*own, "audit", *db).returncode == 0
    told = interlock("audit", *db)
    assert told.returncode == 1
    assert "its lifecycle 'parcel' is not" in told.stdout
    assert interlock("--lifecycles", "nowhere.toml", "audit", *db).returncode == 2
