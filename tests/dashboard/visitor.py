"""Somebody who looks at pages: signs in, opens them, and sends their forms as a browser without scripts would."""

from html.parser import HTMLParser
from typing import Any

import httpx

from tests.server.stage import Stage

BASE = "http://127.0.0.1:8000"


class Forms(HTMLParser):
    """The forms of a page with their fields, its alerts and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[dict[str, Any]] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        own = dict(attrs)
        self.tags.append((tag, own))
        if tag == "form":
            form = {"action": own.get("action") or "", "method": own.get("method", "get"), "fields": {}, "buttons": {}}
            self.forms.append(form)
        if tag == "a" and own.get("href"):
            self.links.append(str(own["href"]))
        if tag in ("input", "select", "textarea") and self.forms and own.get("name"):
            self.forms[-1]["fields"][own["name"]] = own.get("value") or ""
        if tag == "button" and self.forms and "formaction" in own:
            self.forms[-1]["buttons"][own["formaction"]] = own
        elif tag == "button" and self.forms:
            self.forms[-1]["disabled"] = "disabled" in own

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def find(self, action: str) -> dict[str, Any]:
        """The form that goes to this path, or has a button that does."""
        found = [form for form in self.forms if form["action"] == action and action not in form["buttons"]]
        for form in self.forms:
            if own := form["buttons"].get(action):
                fields = form["fields"] | ({own["name"]: own["value"]} if own.get("name") else {})
                found.append({**form, "action": action, "fields": fields, "disabled": "disabled" in own})
        (only,) = found
        return only


class Visitor:
    """A browser with the cookie of one session."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.cookie = ""

    def sign_in(self, key: str) -> "Visitor":
        answer = self.send("POST", "/ui/login", data={"key": key})
        assert answer.status_code == 303, answer.text
        self.cookie = str(answer.cookies.get("interlock_session"))
        return self

    def send(self, method: str, path: str, headers: dict[str, str] | None = None, **facts: Any) -> httpx.Response:
        cookie = {"Cookie": f"interlock_session={self.cookie}"} if self.cookie else {}
        self.stage.client.cookies.clear()
        return self.stage.client.request(
            method, path, headers={**cookie, **(headers or {})}, follow_redirects=False, **facts
        )

    def get(self, path: str, status: int = 200) -> str:
        """The text of a page, after what it leads to."""
        answer = self.send("GET", path)
        while answer.status_code == 303:
            answer = self.send("GET", answer.headers["location"])
        assert answer.status_code == status, (path, answer.status_code, Forms(answer.text).text)
        return answer.text

    def open(self, path: str, status: int = 200) -> Forms:
        return Forms(self.get(path, status))

    def press(self, page: str, action: str, status: int = 303, **fields: str) -> httpx.Response:
        """Sends a form of a page."""
        form = self.open(page).find(action)
        answer = self.send(form["method"].upper(), action, data={**form["fields"], **fields})
        assert answer.status_code == status, (answer.status_code, Forms(answer.text).text)
        return answer
