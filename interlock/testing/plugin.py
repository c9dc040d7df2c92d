"""The pytest plugin of Interlock: the fixture `interlock_app`."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from interlock.client.app import App
from interlock.testing.stage import MEMORY, Stage, staged


@pytest.fixture
def interlock_app() -> Iterator[Callable[..., Stage]]:
    """`interlock_app(app)` puts an app on a stage until the test is over; without one it makes an app."""
    with ExitStack() as stack:

        def put(app: App | None = None, url: str = MEMORY, **options: Any) -> Stage:
            return stack.enter_context(staged(app or App(url), url, **options))

        yield put
