"""Thousands of requests made from the OpenAPI text: none is a fault of ours, and every answer is one that it describes."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.server.serving import serving

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def fuzz(folder: Path, examples: int, seed: int, phases: str, seconds: float, *more: str) -> int:
    """So many cases were tried, and each was answered as it should be."""
    with serving(f"sqlite:///{folder}/work.db") as (base, key, process):
        assert process.stderr
        log: list[str] = []
        reader = threading.Thread(target=lambda: log.extend(process.stderr or ()))  # else the pipe fills up
        reader.start()
        tool = str(Path(sys.executable).parent / "schemathesis")
        command = [tool, "run", f"{base}/openapi.json", "-H", f"Authorization: Bearer {key}", "--checks", CHECKS]
        command += ["--phases", phases, "--max-examples", str(examples), "--seed", str(seed), "--no-color", *more]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, cwd=folder)
        process.kill()
        reader.join()
    ours = [line for line in log if '"level":"error"' in line]
    assert not ours, ours[:3]
    assert done.returncode == 0, done.stdout[-4_000:]
    found = re.search(r"(\d+) generated", done.stdout)
    assert found, done.stdout[-2_000:]
    return int(found[1])


# Every bound of every field of every command takes long: that is for `make proof`.
SHORT = """
[[operations]]
include-path-regex = "^/v1/(commands|views)"
phases.coverage.enabled = false
phases.fuzzing.generation.max-examples = 10
"""
# A filter has a dozen fields, and all their bounds together are too many even then.
LONG = """
[[operations]]
include-path-regex = "^/v1/views"
phases.coverage.enabled = false
"""


@pytest.mark.req("X-21")
def test_a_thousand_strange_requests(tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(SHORT)
    assert fuzz(tmp_path, 1, 1, "coverage,fuzzing", 200) >= 1_000


@pytest.mark.proof
def test_ten_thousand_strange_requests(tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(LONG)
    without_waits = ("--exclude-path", "/v1/wait")  # the short form has it; each would take up to half a minute
    assert fuzz(tmp_path, 100, 2, "coverage,fuzzing,stateful", 1_200, *without_waits) >= 10_000
