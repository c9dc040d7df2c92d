"""An environment as `make run` leaves it: what requirements/server.txt names is there, and nothing else.

Nothing is fetched. Distributions are linked from the environment of the tests; `pip install` in it does the same with
what it is told to install, and with what that needs.
"""

import re
import sys
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.conftest import ROOT

PIP = """
import subprocess, sys
if sys.argv[1:2] != ["install"]:
    sys.exit("only `pip install` is known here")
names = [word for word in sys.argv[2:] if not word.startswith("-")]
sys.exit(subprocess.run([{python!r}, "-m", "tests.docs.fresh", {site!r}, *names], cwd={root!r}).returncode)
"""
COMMAND = "#!{python}\nimport sys\nfrom interlock.cli import main\nsys.exit(main())\n"


def make(folder: Path) -> Path:
    """The environment, in a folder of its own."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    pinned = (ROOT / "requirements" / "server.txt").read_text(encoding="utf-8")
    for name in ["interlock", *re.findall(r"^([A-Za-z0-9_.-]+)==", pinned, re.MULTILINE)]:
        try:
            link(distribution(name), site)
        except PackageNotFoundError:
            assert name != "interlock"  # others may be for another system
    (site / "pip").mkdir()
    (site / "pip" / "__init__.py").touch()
    (site / "pip" / "__main__.py").write_text(PIP.format(python=sys.executable, site=str(site), root=str(ROOT)))
    command = folder / "bin" / "interlock"
    command.write_text(COMMAND.format(python=folder / "bin" / "python"))
    command.chmod(0o755)
    return folder


def link(one: Distribution, site: Path) -> None:
    """What a distribution holds is importable from there."""
    for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
        place = site / top
        if not place.exists():
            place.symlink_to(Path(str(one.locate_file(top))).resolve())


def install(name: str, site: Path) -> None:
    """A distribution and all that it needs are linked."""
    wanted = Requirement(name)
    one = distribution(wanted.name)
    link(one, site)
    for text in one.requires or ():
        needed = Requirement(text)
        if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
            install(str(needed).partition(";")[0], site)


if __name__ == "__main__":
    for argument in sys.argv[2:]:
        install(argument, Path(sys.argv[1]))
