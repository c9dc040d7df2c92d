"""Waiting without a worker: jobs below a job, a question to people, and calls that are never repeated in silence.

Run it with `interlock up branch_cleaner:app`, and in another terminal `python branch_cleaner.py`; then answer it with
`interlock inbox` and `interlock approve ID --role ops`, perhaps with `--arguments '["old"]'`.
"""

import interlock

app = interlock.open()
branches = {"main": 0, "old": 400, "older": 900}  # days since the last commit, as the repository would say
deleted: list[str] = []


def delete(branch: str) -> str:
    branches.pop(branch)
    deleted.append(branch)
    return branch


def find_deleted(branch: str) -> str | None:
    return None if branch in branches else branch


@app.task
def measure(branch: str) -> int:
    return branches[branch]


@app.task(attempts=5)
def clean(names: list[str], ctx: interlock.Context) -> list[str]:
    ages = {name: ctx.spawn(f"measure {name}", measure, branch=name) for name in names}  # all at once
    stale = [name for name, child in ages.items() if child.wait() > 365]
    approved = ctx.ask("delete these?", stale, approvers=["ops"], expires="8h")  # perhaps fewer of them
    return [clean_one(name, ctx) for name in approved]


def clean_one(name: str, ctx: interlock.Context) -> str:
    # A worker that is lost in the middle of it leaves a question, and `check` answers it.
    return ctx.effect(f"delete {name}", lambda: delete(name), check=lambda: find_deleted(name))


def main() -> None:
    job = clean.submit(names=list(branches))
    print(f"waiting for an answer: interlock inbox, interlock approve {job.id} --role ops")
    print(job.wait(timeout="10m"))


if __name__ == "__main__":
    main()
