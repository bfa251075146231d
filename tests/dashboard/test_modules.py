"""What the scripts of the dashboard compute, asked in the browser that runs them."""

from collections.abc import Iterator
from typing import Any

import pytest
from dashboard.visits import Visiting
from dashboard.windows import Windows
from playwright.sync_api import Error, Page
from support.broker import Served, serving


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, windows: Windows) -> Iterator[Page]:
    """One for all tests here: none of them changes anything."""
    with serving(tmp_path_factory.mktemp("modules")) as served:
        view = windows.begin(served, windows.shared(False, False))
        yield view.open()
        windows.end(view)
    view.check()


def asked(page: Page, module: str, expression: str) -> Any:
    """What an expression says, in which `m` is a module."""
    return page.evaluate(f"import('/dashboard/{module}.js').then((m) => {expression})")


def said(page: Page, calls: dict[str, str]) -> dict[str, Any]:
    return {call: asked(page, "format", f"m.{call}") for call in calls}


def test_numbers_are_written_as_people_read_them(page: Page) -> None:
    expected = {
        "count(1234567)": "1,234,567",
        "count(null)": "\N{EN DASH}",
        "short(9999)": "9,999",
        "short(1234567)": "1.23 M",
        "short(45000)": "45 k",
        "rate(0)": "0",
        "rate(0.01)": "<0.1",
        "rate(3.14)": "3.1",
        "rate(12345)": "12.3 k",
        "rate(null)": "\N{EN DASH}",
        "bytes(0)": "0 B",
        "bytes(1536)": "1.5 KiB",
        "bytes(67108864)": "64 MiB",
        "duration(0)": "0 s",
        "duration(250)": "250 ms",
        "duration(1500)": "1.5 s",
        "duration(93000)": "1 min 33 s",
        "duration(604800000)": "7 d",
        "duration(90000000)": "1 d 1 h",
        "percent(0.001)": "<1 %",
        "many(1, 'message')": "1 message",
        "many(2, 'message')": "2 messages",
        "ago(0, 300000000)": "5 min ago",
        "ago(7200000000, 0)": "in 2 h",
    }
    assert said(page, expected) == expected


def test_settings_are_understood_as_people_write_them(page: Page) -> None:
    def understood(kind: str, text: str, **more: Any) -> Any:
        spec = {"name": "x", "kind": kind, "optional": False, "lowest": 1, "highest": 10**15, **more}
        script = (
            "([spec, text]) => import('/dashboard/settings_spec.js').then((m) => m.understood(spec, text))"
        )
        return page.evaluate(script, [spec, text])

    assert understood("time", "45 s") == 45_000
    assert understood("time", "1.5min") == 90_000
    assert understood("time", "250") == 250
    assert understood("size", "64 MiB") == 64 * 1024 * 1024
    assert understood("weights", "8:4:1") == [8, 4, 1]
    assert understood("weights", "strict") == "strict"
    assert understood("number", "", optional=True) is None
    assert understood("decimal", "1.5") == 1.5
    assert understood("flag", "true") is True
    for kind, text in (
        ("time", "soon"),
        ("number", "1 s"),
        ("number", "0"),
        ("number", "1.5"),
        ("decimal", "twice"),
        ("number", ""),
        ("weights", "8:4"),
    ):
        with pytest.raises(Error, match="x"):
            understood(kind, text)


RATES = """
(counters) => import("/dashboard/history.js").then(({ History }) => {
  const history = new History();
  counters.forEach((published, second) => {
    const waiting = { backlog: 1, pending: 1, in_flight: 0, retrying: 0, oldest_unacked_ms: 5 };
    const group = { delivered: published, acked: 0, ...waiting };
    const stored = { messages: 1, bytes: 1, delayed: 0, dead_letters: 0 };
    const topic = { published, ...stored, groups: { a: group, b: group } };
    history.push({ time: second * 1_000_000, topics: { orders: topic }, free_bytes: 1 });
  });
  return {
    points: history.points.map((point) => point.published),
    delivered: history.points.map((point) => point.delivered),
    topicPoints: history.topicPoints("orders").map((point) => point.published),
    groupPoints: history.groupPoints("orders", "a").map((point) => point.delivered),
    topic: history.topicRates("orders").published,
    group: history.groupRates("orders", "a").delivered,
    nobody: history.topicRates("nobody").published,
  };
})
"""


def test_rates_are_differences_of_counters(page: Page) -> None:
    rates = page.evaluate(RATES, [100, 110, 130, 130, 130])
    # Each a mean of up to five seconds, the same wherever it is shown.
    assert rates["points"] == [None, 10, 15, 10, 7.5]
    assert rates["delivered"] == [None, 20, 30, 20, 15]
    assert (rates["topic"], rates["group"], rates["nobody"]) == (7.5, 7.5, None)
    rates = page.evaluate(RATES, [0, 0, 0, 0, 0, 0, 0, 50, 90, 90])
    assert rates["topicPoints"][-1] == rates["points"][-1] == rates["topic"] == 18
    assert rates["groupPoints"][-1] == rates["group"] == 18


def test_a_counter_that_began_anew_has_no_rate(page: Page) -> None:
    points = page.evaluate(RATES, [100, 110, 5, 8, 11, 14])["points"]
    assert points == [None, 10, None, 3, 3, 3]


def test_an_element_takes_text_and_nothing_else(page: Page) -> None:
    shown = page.evaluate(
        """() => import("/dashboard/dom.js").then(({ h }) => {
          const text = "<img src=x onerror=alert(1)>";
          const made = h("p", { title: '"><img>' }, text, null, false, 0, ["<b>"]);
          return [made.children.length, made.textContent, made.getAttribute("title")];
        })"""
    )
    assert shown == [0, "<img src=x onerror=alert(1)>0<b>", '"><img>']


REFUSED = (
    "{ innerHTML: '<b>' }",
    "{ srcdoc: '<b>' }",
    "{ onclick: 'alert(1)' }",
    "{ href: 'javascript:alert(1)' }",
    "{ href: 'https://elsewhere.example' }",
    "{ href: '//elsewhere.example' }",
    "{ src: '/x.js' }",
)


def test_what_would_run_or_lead_away_is_refused(page: Page) -> None:
    for props in REFUSED:
        with pytest.raises(Error, match=r"not set from here|takes a function|this broker only"):
            asked(page, "dom", f"m.h('a', {props})")


def test_the_browser_itself_lets_no_text_become_markup(broker: Served, visit: Visiting) -> None:
    view = visit(broker)
    view.expect_words("TrustedHTML", "Trusted Type")
    page = view.open()
    with pytest.raises(Error, match="TrustedHTML"):
        page.evaluate("() => { document.body.innerHTML = '<b>x</b>'; }")
