"""The page of `nmt report` in Chromium: two trained runs side by side."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from browser import Browser
from tiny_run import run as tiny_run

ERRORS = ("Runtime.exceptionThrown", "Log.entryAdded")


@pytest.fixture(scope="module")
def page(tiny_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    tiny_run(tiny_data, folder / "small", validate_every=4, save_every=6)
    tiny_run(
        tiny_data, folder / "</script>", validate_every=4, save_every=6, d_model=32, num_layers=2
    )
    command = ["report", folder / "small", folder / "</script>", "--beam", "1", "--examples", "2"]
    out = folder / "page.html"
    subprocess.run(
        [sys.executable, "-m", "nmt_cli", *map(str, command), "--out", out, "--device", "cpu"],
        check=True,
    )
    return out


def test_the_page_shows_both_runs_without_network_or_errors(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.evaluate("document.getElementById('problem').hidden")
    assert [event for event in browser.events if event["method"] in ERRORS] == []
    requests = [
        e["params"]["request"]["url"]
        for e in browser.events
        if e["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    names = browser.evaluate(
        "[...document.querySelectorAll('#figures thead th')].map(e => e.textContent)"
    )
    assert [name.rpartition("/small")[1] or name[-9:] for name in names[1:]] == [
        "/small",
        "</script>",
    ]
    different = browser.evaluate(
        "[...document.querySelectorAll('#settings tbody th')].map(e => e.textContent)"
    )
    assert different == ["model.d_model", "model.num_layers"]


def test_curves_have_a_line_for_each_run_and_follow_the_choice_of_axis(
    browser: Browser, page: Path
) -> None:
    browser.open(page)
    titles = browser.evaluate(
        "[...document.querySelectorAll('#charts h3')].map(e => e.textContent)"
    )
    assert titles == [
        "loss",
        "perplexity",
        "learning rate",
        "target tokens per second",
        "gradient norm",
    ]
    lines = (
        "[...document.querySelectorAll('#charts figure')].map(f => "
        "f.querySelectorAll('polyline').length)"
    )
    assert browser.evaluate(lines) == [4, 4, 2, 2, 2]
    before = browser.evaluate("document.querySelector('polyline').getAttribute('points')")
    browser.point("#along [value=hours]", click=True)
    assert browser.evaluate("document.querySelector('polyline').getAttribute('points')") != before


def test_pointing_at_a_curve_reads_its_values(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.point("#charts svg", 0.99)
    last = browser.evaluate("DATA.runs[0].curves.loss.filter(x => x !== null).at(-1)")
    text = browser.evaluate("document.querySelector('figcaption').textContent")
    assert text.startswith("update 12: ")
    assert f"{last:.4g}" in text
    assert "1loss" in text.replace(" ", "")  # the runs are numbered
    assert "2loss" in text.replace(" ", "")


def test_an_example_leads_to_its_attention(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.point("#improving > div:nth-child(2) button", click=True)
    source = browser.evaluate(
        "document.querySelector('#improving > div:nth-child(2) bdi').textContent"
    )
    browser.wait_for(f"document.getElementById('source').textContent === {source!r}")
    layers = (
        "new Set([...document.querySelectorAll('#grid .layer')].map(e => e.textContent)).size - 1"
    )
    assert browser.evaluate(layers) == 1
    browser.evaluate("showSentence(DATA.sentences.length - 1)")
    browser.wait_for(f"{layers} === 2")
