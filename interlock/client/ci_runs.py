"""A run of CI as a program sees it: its plan, its jobs, and what they have left."""

from interlock.client.runs import Run
from interlock.plugins.ci.options import JOB
from interlock.plugins.ci.planner import CiPlan
from interlock.plugins.ci.queries import CiJobRow, CiTestRow, list_ci_jobs, list_ci_tests, read_ci_plan
from interlock.plugins.evidence.queries import ArtifactInfo, list_artifacts


class CiRun(Run):
    """A run of CI. `app.run(id)` finds it; `interlock ci run` makes one."""

    @property
    def plan(self) -> CiPlan | None:
        """Which jobs it has, and why each of them; None as long as it has no plan."""
        return self.app.read(read_ci_plan, self.unit)

    @property
    def jobs(self) -> dict[str, str]:
        """The state of each job, by name, in the order of the plan."""
        return {job.name: job.state for job in self.read_jobs()}

    @property
    def artifacts(self) -> list[ArtifactInfo]:
        """What the last attempts of its jobs have left."""
        attempts = [job.last_attempt for job in self.read_jobs() if job.last_attempt is not None]
        return [artifact for attempt in attempts for artifact in self.app.read(list_artifacts, attempt)]

    @property
    def tests(self) -> list[CiTestRow]:
        """The tests that the JUnit reports of its jobs name, by attempt."""
        return self.app.read(list_ci_tests, self.unit)

    def read_jobs(self) -> list[CiJobRow]:
        """Reads its jobs; an approval that one of them waits for is none."""
        return [job for job in self.app.read(list_ci_jobs, self.unit) if job.lifecycle == JOB]
