"""Run a command in a process tree of its own, of which nothing is left when it has ended."""

from interlock.process.masking import Masker, mask
from interlock.process.run import ProcessEnd, ProcessLimits, arun, run
from interlock.process.sandbox import SANDBOXES, choose_sandbox

__all__ = ["SANDBOXES", "Masker", "ProcessEnd", "ProcessLimits", "arun", "choose_sandbox", "mask", "run"]
