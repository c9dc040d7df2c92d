"""Explain why a job, run or step is in its state, and what keeps it there: `explain`."""

from interlock.client.why.explanation import Why as Why
from interlock.client.why.explanation import explain as explain
