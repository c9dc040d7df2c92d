"""A workflow with people in it: two builds side by side, a gate of two votes, a deploy that can wait and is undone.

Run it with `interlock up release_train:app`, and in another terminal `python release_train.py`.
"""

from typing import Any

import interlock

app = interlock.open()
live: list[str] = []


@app.task
def build_web(version: str, ctx: interlock.Context) -> str:
    ctx.cost(0.25)
    return f"web:{version}"


@app.task
def build_api(version: str, ctx: interlock.Context) -> str:
    ctx.cost(0.5)
    return f"api:{version}"


@app.task
def deploy(build_web: str, build_api: str, ship: dict[str, Any]) -> list[str]:
    live.extend([build_web, build_api])
    return ship["by"]


@app.task
def roll_back(build_web: str, build_api: str) -> None:
    live.remove(build_web)
    live.remove(build_api)


@app.task(attempts=1)
def smoke_test(version: str) -> None:
    if version.endswith("-broken"):
        raise interlock.Reject("the front page is blank")


release = app.workflow(
    "release",
    steps=[
        interlock.parallel(build_web, build_api),
        interlock.approval("ship", quorum=2, not_submitter=True, expires="24h"),
        interlock.step(deploy, undo=roll_back),
        smoke_test,
    ],
)


def main() -> None:
    run = release.submit(version="1.2", key="rel-1.2", by="ann")
    try:
        run.wait(timeout="1m")
    except interlock.StillWaiting:
        print(f"waiting on {run.waiting_on} at a cost of {run.cost}")
    app.pause(task="deploy", reason="nothing goes live during the fair", until="8h")
    run.approve(by="bob", comment="looks good")
    run.approve(by="cy")
    app.unpause(task="deploy")  # the fair is over: what was approved meanwhile begins now
    print(f"deployed by {run.wait(timeout='1m')['deploy']}")


if __name__ == "__main__":
    main()
