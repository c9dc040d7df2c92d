"""JUnit files: what is read of them, and what of a file that means harm."""

import pytest

from interlock.kernel.errors import InterlockError
from interlock.plugins.ci.junit import BYTES_MAX, TESTS_MAX, CiTest, choose_tests, parse_junit

FILE = b"""<?xml version="1.0"?>
<testsuites><testsuite name="s">
<testcase classname="pkg.A" name="adds" time="0.25"/>
<testcase classname="pkg.A" name="breaks" time="1,000.5"><failure message="1 != 2">trace</failure></testcase>
<testcase name="errs"><error>no
 database</error></testcase>
<testcase name="later" time="soon"><skipped/></testcase>
<testcase/>
</testsuite></testsuites>
"""


def test_every_test_has_a_name_an_outcome_and_a_time() -> None:
    assert parse_junit(FILE, "report.xml") == [
        CiTest("pkg.A::adds", "passed", 250),
        CiTest("pkg.A::breaks", "failure", 1_000_500, "1 != 2"),
        CiTest("errs", "error", 0, "no database"),
        CiTest("later", "skipped", 0),
        CiTest("a test without a name", "passed", 0),
    ]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "'r.xml' is no JUnit file: no element found"),
        (b"<a>", "'r.xml' is no JUnit file: no element found"),
        (b"\xff\xfe<", "'r.xml' is no JUnit file: "),
        (b'<!DOCTYPE a [<!ENTITY b "x">]><a>&b;</a>', "'r.xml' has a document type, which is not read"),
        (b"<a>" + b" " * BYTES_MAX, "'r.xml' has more than 16 MiB, which are allowed"),
    ],
)
def test_a_file_that_is_none_is_a_sentence(data: bytes, why: str) -> None:
    with pytest.raises(InterlockError) as refused:
        parse_junit(data, "r.xml")
    assert str(refused.value).startswith(why)


def test_of_too_many_tests_those_that_failed_are_kept() -> None:
    many = [CiTest(str(number), "passed", 1) for number in range(TESTS_MAX)]
    kept = choose_tests([*many, CiTest("last", "failure", 1)])
    assert (len(kept), kept[0].name) == (TESTS_MAX, "last")


def test_a_deep_document_ends_nothing() -> None:
    deep = b"<a>" * 100_000 + b"</a>" * 100_000
    try:
        assert parse_junit(deep, "r.xml") == []
    except InterlockError as error:
        assert "is no JUnit file" in str(error)  # noqa: PT017


def test_long_names_and_messages_are_cut() -> None:
    text = b'<t><testcase name="%s"><failure message="%s"/></testcase></t>' % (b"n" * 9_000, b"m" * 9_000)
    (test,) = parse_junit(text, "r.xml")
    assert (len(test.name), len(test.message)) == (300, 200)
