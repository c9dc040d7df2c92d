"""Every requirement that we claim has a test that runs, and no test claims too much."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.conftest import ROOT

IDS_A_TEST = 5
SERVER = "tests/server/"
Mapping = dict[str, dict[str, list[str]]]


def collected(tests: list[Path], out: Path) -> Mapping:
    """What pytest finds in a folder of tests, with the requirements that each claims."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not proof", "-p", "tests.spec.mapping"]
    options = [
        "--mapping",
        str(out),
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "pyproject.toml"),
        "--rootdir",
        str(ROOT),
    ]
    done = subprocess.run([*command, *options, *map(str, tests)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout + done.stderr
    found: Mapping = json.loads(out.read_text())
    return found


def claimed(kind: str | None = None) -> set[str]:
    """What is claimed: all of it, or of one kind such as `wire`."""
    parts = tomllib.loads((ROOT / "tests" / "spec" / "required.toml").read_text(encoding="utf-8"))
    return {name for part in parts.values() for key, names in part.items() if kind in (None, key) for name in names}


def faults(mapping: Mapping, wanted: set[str], wire: Collection[str] = ()) -> list[str]:
    """What is wrong with a map of tests to requirements; those of `wire` need a test of the server."""
    served = {name for test in mapping.values() if not test["skips"] for name in test["ids"]}
    over_http = {name for node, test in mapping.items() if node.startswith(SERVER) for name in test["ids"]}
    found = [f"{name} has no test" for name in sorted(wanted - served)]
    found += [f"{name} has no test over HTTP" for name in sorted(set(wire) - over_http)]
    found += [f"{name} is served but not claimed in required.toml" for name in sorted(served - wanted)]
    for node, test in mapping.items():
        if test["ids"] and test["skips"]:
            found.append(f"{node} serves a requirement and is skipped")
        if len(test["ids"]) > IDS_A_TEST:
            found.append(f"{node} serves {len(test['ids'])} requirements; {IDS_A_TEST} are allowed")
    return found


def suites() -> list[Path]:
    """The folders of tests that `make test` runs."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^SUITES \?= ((?:.+\\\n)*.+)$", makefile, re.MULTILINE)
    return [ROOT / "tests" / name for name in re.findall(r"\w+", listed)]


def test_every_claimed_requirement_has_a_test(tmp_path: Path) -> None:
    assert faults(collected(suites(), tmp_path / "mapping.json"), claimed(), claimed("wire")) == []


def test_every_folder_of_tests_is_a_suite() -> None:
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    assert folders == set(suites())


SEVEN = ", ".join(f'pytest.param({n}, marks=pytest.mark.req("R0-0{n}"))' for n in range(1, 8))
PLANTED = {
    "half": '@pytest.mark.req("R0-01")\ndef test_a(): ...',
    "skipped": '@pytest.mark.skip\n@pytest.mark.req("R0-01", "R0-02")\ndef test_a(): ...',
    "too_many": '@pytest.mark.req("R0-01", "R0-02", "R0-03", "R0-04", "R0-05", "R0-06")\ndef test_a(): ...',
    "proof": '@pytest.mark.proof\n@pytest.mark.req("R0-01", "R0-02")\ndef test_a(): ...',
    "unclaimed": '@pytest.mark.req("R0-01", "R0-02", "R9-99")\ndef test_a(): ...',
    "cases": f"@pytest.mark.parametrize('n', [{SEVEN}])\ndef test_a(n): ...",
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Mapping:
    """The map of tests that break the rules, each in a file of its own."""
    folder = tmp_path_factory.mktemp("planted")
    for name, body in PLANTED.items():
        (folder / f"test_{name}.py").write_text(f"import pytest\n\n{body}\n")
    return collected([folder], folder / "mapping.json")


def only(mapping: Mapping, name: str) -> Mapping:
    return {node: test for node, test in mapping.items() if f"test_{name}.py::" in node}


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("half", "R0-02 has no test"),
        ("skipped", "R0-01 has no test"),
        ("skipped", "::test_a serves a requirement and is skipped"),
        ("too_many", "::test_a serves 6 requirements; 5 are allowed"),
        ("proof", "R0-01 has no test"),
        ("unclaimed", "R9-99 is served but not claimed"),
    ],
)
def test_the_map_is_held_to_its_rules(name: str, fault: str, planted: Mapping) -> None:
    found = faults(only(planted, name), {"R0-01", "R0-02"})
    assert any(fault in text for text in found), found


def test_a_requirement_over_http_needs_a_test_of_the_server() -> None:
    beside, far = (
        {f"tests/{suite}/test_a.py::test_a": {"ids": ["R0-01"], "skips": []}} for suite in ("core", "server")
    )
    assert faults(beside, {"R0-01"}, {"R0-01"}) == ["R0-01 has no test over HTTP"]
    assert faults({**beside, **far}, {"R0-01"}, {"R0-01"}) == []


def test_parameter_cases_count_apart(planted: Mapping) -> None:
    cases = only(planted, "cases")
    assert len(cases) == 7
    assert faults(cases, {f"R0-0{n}" for n in range(1, 8)}) == []


def test_a_test_that_skips_itself_while_it_serves_a_requirement_fails(tmp_path: Path) -> None:
    text = "import pytest\n\n@pytest.mark.req('R0-01')\ndef test_a():\n    pytest.skip('not today')\n"
    (tmp_path / "test_planted.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    options = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), str(tmp_path)]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "serves a requirement and was skipped" in done.stdout
