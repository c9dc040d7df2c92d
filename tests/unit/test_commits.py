"""What a handler returned on a repository, and the commit beside it."""

from typing import Any

import pytest

from interlock.kernel.commits import add_commit, take_value

COMMIT = "0a7c5e6e38716e0d8b5260a4b2a8ce572d2b9a3d"


@pytest.mark.parametrize("value", [7, "x", [], [1], {"value": 1}, {"commit": "mine"}, {"value": 1, "commit": COMMIT}])
def test_what_is_no_object_of_its_own_comes_back_as_it_was(value: Any) -> None:
    assert take_value(add_commit(value, COMMIT)) == value
    assert take_value([add_commit(value, COMMIT)] * 2) == [value] * 2


@pytest.mark.parametrize("value", [{}, {"a": 1}, {"value": 1, "a": 2}])
def test_an_object_keeps_its_members_and_gets_the_commit(value: Any) -> None:
    assert add_commit(value, COMMIT) == take_value(add_commit(value, COMMIT)) == {**value, "commit": COMMIT}


def test_what_was_never_wrapped_is_left_alone() -> None:
    for value in ({"value": 1, "commit": "v1.2"}, {"value": 1}, [{"value": 1, "commit": COMMIT}, 2], [], None):
        assert take_value(value) == value
