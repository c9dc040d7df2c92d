"""A log of any length is checked in little memory: nothing of it is kept but a few bytes an entity."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import COMMAND

MANY = Path(__file__).with_name("many.py")
MIB = 1 << 20
LIMIT = 256 * MIB
# A small process of its own between, so that its child's peak is not blurred by the size of this one.
LIMITED = """
import resource, subprocess, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
done = subprocess.run(sys.argv[2:])
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=sys.stderr)
sys.exit(done.returncode)
"""


def under_the_limit(source: list[str]) -> tuple[subprocess.CompletedProcess[str], int]:
    """What the command says of what `source` pipes into it, and its peak in bytes."""
    command = [sys.executable, "-c", LIMITED, str(LIMIT), str(COMMAND), "validate-log", "--json", "-"]
    with subprocess.Popen(source, stdout=subprocess.PIPE) as pipe:
        done = subprocess.run(command, stdin=pipe.stdout, capture_output=True, text=True, check=False)
    assert pipe.returncode == 0
    return done, int(done.stderr)


def check_many(size: int) -> int:
    """A log of `size` bytes without one entity twice is fine; the answer is the peak in bytes."""
    done, peak = under_the_limit([sys.executable, str(MANY), str(size)])
    report = json.loads(done.stdout)
    assert done.returncode == 0
    assert report["ok"]
    assert report["lines"] == report["entities"] > size / 240
    print(f"{report['lines']} lines, {report['entities']} entities, peak {peak / MIB:.0f} MiB")
    return peak


def test_a_hundred_megabytes_of_entities_fit_into_very_little() -> None:
    assert check_many(96 * MIB) < 80 * MIB


@pytest.mark.proof
def test_a_gigabyte_of_entities_fits_into_256_megabytes() -> None:
    assert check_many(1024 * MIB) < LIMIT


def test_a_gigantic_line_is_not_kept() -> None:
    write = "import sys\nfor _ in range(300): sys.stdout.write('x' * (1 << 20))"
    done, peak = under_the_limit([sys.executable, "-c", write])
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["message"] == "it is longer than 1048576 bytes and was skipped"
    assert peak < 80 * MIB
