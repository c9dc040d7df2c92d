"""Transactional submit: an order and its mail are there together, or neither is.

Run it with `python transactional_submit.py`.
"""

import sqlite3

import interlock

FILE = "shop.db"
app = interlock.open(f"sqlite:///{FILE}")


@app.task
def confirm(order: int) -> str:
    return f"confirmed {order}"


def buy(connection: sqlite3.Connection, order: int, *, paid: bool) -> None:
    with connection:  # commits, or rolls back if this raises
        connection.execute("INSERT INTO orders (id) VALUES (?)", (order,))
        confirm.submit(order, tx=connection)
        if not paid:
            raise ValueError("the card was refused")


def main() -> None:
    with app:  # connected now, so its file is there before the shop's own table is
        connection = sqlite3.connect(FILE)
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
        buy(connection, 1, paid=True)
        try:
            buy(connection, 2, paid=False)
        except ValueError as error:
            print(f"order 2: {error}")
        print("orders:", connection.execute("SELECT count(*) FROM orders").fetchone()[0])
        connection.close()


if __name__ == "__main__":
    main()
