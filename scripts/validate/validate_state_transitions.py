"""The command that document 003 names: hands over to `interlock validate-log`, whichever Python started it."""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
COMMAND = os.path.join(ROOT, ".venv", "bin", "interlock")
USAGE = 2


def main() -> None:
    """The log was checked, in the environment of this repository, which is made first where it is missing."""
    try:
        if not os.path.exists(COMMAND):
            # What make says is no finding, so it does not go where findings go.
            make = ["make", "--silent", "--directory", ROOT, ".venv/.run"]
            subprocess.run(make, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)
        os.execv(COMMAND, [COMMAND, "validate-log", *sys.argv[1:]])
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"Interlock could not be set up: {error}\n")
        sys.exit(USAGE)


if __name__ == "__main__":
    main()
