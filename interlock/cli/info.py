"""`interlock info`: print the version, the lifecycles and what to try next."""

from interlock import __version__
from interlock.cli import lifecycle
from interlock.cli.output import Json, print_line


def print_info(json: Json = False) -> None:
    """Print the version, the lifecycles that are known, and what to try next."""
    if json:
        lifecycle.list_lifecycles(json=True)
        return
    print_line(f"Interlock {__version__} knows these lifecycles:\n")
    lifecycle.list_lifecycles(json=False)
    print_line("\nLook at one:       interlock lifecycle show job")
    print_line("Draw them all:     interlock lifecycle docs")
    print_line("Prove them:        interlock lifecycle check")
    print_line("Check a log:       interlock validate-log FILE")
    print_line("\n(The command is .venv/bin/interlock in this folder.)")
