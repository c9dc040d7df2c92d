"""A pytest plugin that writes down which collected test serves which requirement, and which it skips."""

import json
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mapping", type=Path, help="where to write the map of tests to requirements")


def pytest_collection_finish(session: pytest.Session) -> None:
    tests = {
        item.nodeid: {
            "ids": sorted({name for mark in item.iter_markers("req") for name in mark.args}),
            "skips": [mark.name for mark in item.iter_markers() if mark.name in ("skip", "skipif", "xfail")],
        }
        for item in session.items
    }
    session.config.getoption("--mapping").write_text(json.dumps(tests))
