"""A long import that says how far it is, goes on where the last attempt stopped, and ends well when it is cancelled.

It needs two things at once: the stock for itself alone, and the supplier, who takes 30 imports in an hour.

Run it with `interlock up stoppable_import:app`, and in another terminal `python stoppable_import.py`.
"""

import interlock

app = interlock.open()
PAGES = 10
stored: list[int] = []


def store(page: int) -> None:
    stored.append(page)


@app.task(queue="imports", resources=[interlock.exclusive("stock"), interlock.rated("supplier", 30, per="1h")])
def load(ctx: interlock.Context) -> str:
    first = ctx.saved["page"] + 1 if ctx.saved else 0
    for page in range(first, PAGES):
        if ctx.cancelled:
            ctx.log("stopped before page", page)
            raise interlock.Cancelled
        store(page)
        ctx.checkpoint({"page": page})
        ctx.progress((page + 1) / PAGES, f"page {page + 1} of {PAGES}")
    return f"pages {first} to {PAGES - 1}"


def main() -> None:
    print(load.submit().wait(timeout="1m"))


if __name__ == "__main__":
    main()
