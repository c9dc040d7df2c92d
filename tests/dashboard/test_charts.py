"""Charts: what is drawn is what was counted, nothing is told by colour alone, and no text of a name is markup."""

import re
from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

from interlock.client.history import list_levels, list_queues
from interlock.dashboard.charts import (
    HEIGHT,
    PATTERNS,
    WIDTH,
    Part,
    draw_share,
    draw_spark,
    draw_stack,
    find_top,
    list_rows,
    list_ticks,
)
from interlock.store.queries.minute_metrics import SeriesPoint

SINCE, STEP = datetime(2026, 11, 16, 13, 2, tzinfo=UTC), timedelta(minutes=1)
PARTS = [
    Part("success", "succeeded", [3, 0, 4]),
    Part("failure", "failed", [1, 0, 0]),
    Part("dead", "dead letters", [0, 0, 1]),
]
BAR = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v-([\d.]+)h-[\d.]+z")


def test_a_stack_is_as_high_as_its_numbers_and_none_hides_another() -> None:
    text = draw_stack(PARTS, SINCE, STEP, "Jobs that ended")
    drawing = ElementTree.fromstring(text)
    shapes = {
        path.get("class"): str(path.get("d")) for path in drawing.findall("path") if "part" in str(path.get("class"))
    }
    bars = {kind: [tuple(map(float, bar)) for bar in BAR.findall(shape)] for kind, shape in shapes.items()}
    assert {kind: len(found) for kind, found in bars.items()} == {
        "part s-success": 2,
        "part s-failure": 1,
        "part s-dead": 1,
    }
    scale = HEIGHT / find_top(5)
    assert [round(high / scale) for _, _, _, high in bars["part s-success"]] == [3, 4]
    below, above = bars["part s-success"][0], bars["part s-failure"][0]
    assert above[0] == below[0]
    assert round(above[1], 1) == round(below[1] - below[3], 1)  # it stands on the one below
    assert all(x + wide <= WIDTH for found in bars.values() for x, _, wide, _ in found)
    over = [str(path.get("fill")) for path in drawing.findall("path") if path.get("fill")]
    assert over == ["url(#over-failure)", "url(#over-dead)"]
    assert len(set(PATTERNS.values())) == len(PATTERNS)
    hints = [str(hint.findtext("title")) for hint in drawing.findall("rect")]
    assert hints == ["2026-11-16 13:02 UTC: 3 succeeded, 1 failed", "2026-11-16 13:04 UTC: 4 succeeded, 1 dead letters"]
    assert "style" not in text
    assert str(drawing.get("aria-label")) == "Jobs that ended: 9 in all, at most 5 in a step"


def test_numbers_and_instants_stand_beside_a_chart() -> None:
    assert list(list_rows(PARTS, SINCE, STEP)) == [("2026-11-16 13:04", [4, 0, 1]), ("2026-11-16 13:02", [3, 1, 0])]
    assert list_ticks(SINCE, STEP, 60) == ["13:02", "13:17", "13:32", "13:47", "14:02"]
    assert list_ticks(SINCE, timedelta(hours=2), 84)[0] == "Nov 16, 13:02"
    assert [find_top(most) for most in (0, 1, 2, 3, 9, 11, 41, 99, 101, 100_001)] == [
        1, 1, 2, 4, 10, 20, 50, 100, 200, 200_000,
    ]  # fmt: skip


def test_a_spark_says_in_words_how_it_went() -> None:
    drawing = ElementTree.fromstring(draw_spark([2, 0, 1_400], 'Done <"&'))
    assert drawing.get("aria-label") == 'Done <"&: from 2 to 1,400, at least 0 and at most 1,400'
    (line,) = [str(path.get("d")) for path in drawing if path.get("class") == "line"]
    heights = [float(height) for height in re.findall(r"[ML][\d.]+ ([\d.]+)", line)]
    assert (heights[2], heights[1]) == (2.0, 38.0)
    for values in ([], [0], [0, 0]):
        ElementTree.fromstring(draw_spark(values, "Done"))
    for share, width in ((0.0, "0"), (0.5, "48"), (7.0, "96"), (-1.0, "0")):
        assert f'class="fg" width="{width}"' in draw_share(share)


def test_how_much_there_was_follows_from_how_much_there_is() -> None:
    changes = [SeriesPoint(10, "ready", 0, 5), SeriesPoint(30, "ready", 0, -2), SeriesPoint(99, "ready", 0, 7)]
    assert list_levels({"ready": 3, "active": 1}, changes, {10: 0, 20: 1, 30: 2}) == {
        "ready": [5, 5, 3], "active": [1, 1, 1],
    }  # fmt: skip


def test_a_queue_has_its_rate_and_what_95_of_100_took_at_most() -> None:
    runs = [SeriesPoint(0, "mail", 2, 95), SeriesPoint(0, "mail", 7, 5), SeriesPoint(60, "rare", 0, 1)]
    first, second = list_queues([SeriesPoint(0, "mail", 0, 4)], runs, minutes=10)
    assert (first.queue, first.attempts, first.per_minute, first.run_p95) == ("mail", 100, 10.0, 0.025)
    assert (second.queue, second.wait_p95) == ("rare", None)
