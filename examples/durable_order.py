"""Durable steps: an order that is charged once, even if the worker dies between charging and shipping.

Run it with `interlock up durable_order:app`, and in another terminal `python durable_order.py`.
"""

import interlock

app = interlock.open()
charges: list[int] = []


def charge(order: int) -> str:
    charges.append(order)
    return f"receipt-{order}"


def ship(order: int) -> str:
    return f"parcel-{order}"


@app.task(attempts=5)
def fulfil(order: int, ctx: interlock.Context) -> dict[str, str]:
    receipt = ctx.step("charge", lambda: charge(order))  # recorded: the next attempt does not charge again
    ctx.progress(0.5, "charged")
    parcel = ctx.step("ship", lambda: ship(order))
    ctx.artifact("label", f"order {order}, {parcel}")
    return {"receipt": receipt, "parcel": parcel}


def main() -> None:
    print(fulfil.submit(order=7).wait(timeout="1m"))


if __name__ == "__main__":
    main()
