"""A periodic report: at half past eight on workdays in Berlin, once however many workers there are.

Run it with `interlock up daily_report:app`; `interlock schedule trigger report` makes one now.
"""

import interlock

app = interlock.open()
sent: list[str] = []


@app.every("30 8 * * MON-FRI", timezone="Europe/Berlin", arguments={"to": "team@example.org"})
@app.task(queue="reports", attempts=5)
def report(to: str, ctx: interlock.Context) -> str:
    ctx.log("writing the report for", to)
    ctx.artifact("report.csv", b"day,orders\nmonday,7\n")
    sent.append(to)
    return f"sent to {to}"


def main() -> None:
    """Defines the schedule without a worker, and makes one report now."""
    app.schedules.define()
    job = app.schedules.trigger("report")
    print(job.wait(timeout="1m"))
    print(job.read_artifact("report.csv").decode(), job.log(), sep="", end="")


if __name__ == "__main__":
    main()
