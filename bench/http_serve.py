"""`interlock serve` as it is, or with one commit per request: what it would be if requests did not share commits."""

import sys

from interlock.cli import main
from interlock.core import pending

if __name__ == "__main__":
    if "--alone" in sys.argv:
        sys.argv.remove("--alone")
        pending.GROUP_MAX = 1
    sys.argv.insert(1, "serve")
    main()
