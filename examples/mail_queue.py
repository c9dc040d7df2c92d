"""A mail queue: one welcome however often it is asked for, and no attempt is spent while the mail server is away.

Run it with `interlock up mail_queue:app`, and in another terminal `python mail_queue.py`. Other programs need no Python
for it: `interlock submit send --arg to=bob@example.org --arg text=news` takes the rules of the stored task.
"""

import interlock

app = interlock.open()


class Mailbox:
    """Stands for an SMTP server that is away at first."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.refusals = 1

    def deliver(self, to: str, text: str) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("connection refused")
        self.sent.append(f"{to}: {text}")


mailbox = Mailbox()


@app.task(queue="mail", attempts=5, timeout="30s", limit=interlock.limit("smtp", 4), depends="smtp", keep="30d")
def send(to: str, text: str) -> str:
    if "@" not in to:
        raise interlock.Reject(f"'{to}' is no address")  # it would never work: no second try
    try:
        mailbox.deliver(to, text)
    except ConnectionError as error:  # every mail waits: one is tried after 5 seconds, and the others follow it
        raise interlock.Outage("smtp", str(error), retry_after="5s") from None
    return f"sent to {to}"


def main() -> None:
    welcome = send.submit(to="ada@example.org", text="welcome", key="welcome-ada")
    again = send.submit(to="ada@example.org", text="welcome", key="welcome-ada")
    print("one welcome:", welcome.id == again.id)
    send.submit_many([{"to": f"{name}@example.org", "text": "news"} for name in ("bob", "cy")], priority=-1)
    print(welcome.wait(timeout="1m"))


if __name__ == "__main__":
    main()
