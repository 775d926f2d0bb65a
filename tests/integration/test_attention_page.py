"""The page of `nmt attention` in Chromium, over the DevTools protocol."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import Browser

import nmt_cli
from nmt_cli import registry
from nmt_cli.annexes.report.attention import sentences_of
from nmt_cli.annexes.report.page import page as page_with
from nmt_cli.checkpoint import Contents
from nmt_cli.interfaces import BOS, EOS
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask
from nmt_cli.weights import build_model, load_model, save_checkpoint, weights_of

LAYERS, HEADS = 2, 3
WORDS = "one two three four five six seven"
NASTY = (
    "</script>",
    "<script>document.title='broken'</script>",
    "<b>",
    "&amp;",
    "{{data}}",
    "\\u003c",
    "'\"`",
    "אבג",
)
LINES = (WORDS, " ".join(NASTY), "two one")


def saved(folder: Path, **fields: Any) -> Path:
    """A checkpoint of random weights whose words are WORDS and the nasty ones."""
    registry.discover()
    task = TranslationTask(
        TranslationConfig(source_lang="en", target_lang="de", subwords="none", vocab_size=100)
    )
    task.learn([(" ".join(LINES), " ".join(LINES))])
    sections = {
        "model": {"num_layers": LAYERS, "d_model": 12, **fields},
        "attention": {"name": "full"},
    }
    vocabulary = (task.source_vocabulary_size, task.target_vocabulary_size, task.shared_vocabulary)
    contents = Contents(sections, *vocabulary, 1, "run")
    with torch.random.fork_rng():
        torch.manual_seed(3)
        built = build_model(contents, str(folder))
    with torch.no_grad():
        built.get_parameter("target_embedding.weight").mul_(3)[EOS] = 0
    save_checkpoint(folder, contents, weights_of(built), task)
    return folder


def page_of(model: Path, path: Path) -> Path:
    translator = nmt_cli.load(model, device="cpu", max_length_offset=2)
    sentences = sentences_of(translator, dict(zip("123", LINES, strict=True)))
    path.write_bytes(page_with("Attention", "model", ["attention"], {"sentences": sentences}))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "checkpoint"
    return saved(folder, name="transformer", d_ff=16, num_heads=HEADS)


@pytest.fixture(scope="module")
def page(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page_of(model, tmp_path_factory.mktemp("page") / "attention.html")


def shown(browser: Browser) -> dict[str, str]:
    """The current view, as in the page's address."""
    address = browser.evaluate("document.documentElement.dataset.shown")
    return dict(part.split("=") for part in address.removeprefix("#").split("&"))


def test_the_page_opens_without_network_or_errors(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.evaluate("document.getElementById('problem').hidden")
    assert browser.evaluate("document.querySelectorAll('#grid button').length") == LAYERS * HEADS
    assert browser.evaluate(
        "[...document.querySelectorAll('#sentence option')].map(o => o.textContent)"
    ) == [f"{number}. {line}" for number, line in enumerate(LINES, start=1)]
    assert shown(browser)["kind"] == "cross"
    requests = [
        e["params"]["request"]["url"]
        for e in browser.events
        if e["method"] == "Network.requestWillBeSent"
    ]
    assert {url.split(":")[0] for url in requests} <= {"file", "data"}
    assert [
        e for e in browser.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")
    ] == []


def test_weights_are_the_model_s(browser: Browser, page: Path, model: Path) -> None:
    network, task = load_model(model, torch.device("cpu"))
    data = json.loads(page.read_text(encoding="utf-8").split('id="data">')[1].split("</script>")[0])
    written = [text for text, kind in data["sentences"][0]["tokens"]["written"] if kind == "word"]
    source = torch.tensor([[*task.encode_source(WORDS), EOS]])
    ended = data["sentences"][0]["tokens"]["written"][-1] == ["end", "mark"]
    target = torch.tensor([[BOS, *task.encode_target(" ".join(written))]])
    expected = network.attention_weights(source, target if ended else target[:, :-1])
    browser.open(page)
    for kind in ("encoder", "decoder", "cross"):
        got = torch.tensor(browser.evaluate(f"[...weights.{kind}]")).view(expected[kind].shape)
        torch.testing.assert_close(got, expected[kind], atol=0.005, rtol=0)


@pytest.mark.parametrize("view", ["heat", "lines"])
@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_tokens_that_look_like_markup_stay_text(
    browser: Browser, page: Path, kind: str, view: str
) -> None:
    browser.open(page, f"#sentence=2&kind={kind}&view={view}&layer=1&heads=2")
    assert shown(browser) | {
        "sentence": "2",
        "kind": kind,
        "view": view,
        "layer": "1",
        "heads": "2",
    } == shown(browser)
    assert browser.evaluate("document.title").startswith("Attention")
    assert browser.evaluate("document.getElementById('source').textContent") == LINES[1]
    labels = browser.evaluate(
        f"[...document.querySelectorAll('#{view} .token')].map(t => t.textContent)"
    )
    if kind != "decoder":
        assert labels[-len(NASTY) - 1 :] == [*NASTY, "⟨end⟩"]
    else:
        assert "⟨start⟩" in labels


def test_the_mouse_selects_heads_and_cells(browser: Browser, page: Path) -> None:
    browser.open(page, "#kind=encoder&layer=1&heads=1")
    browser.point("#grid button[data-layer='1'][data-head='2']", click=True)
    assert (shown(browser)["layer"], shown(browser)["heads"]) == ("2", "3")
    words = [*(f"“{word}”" for word in WORDS.split()), "⟨end⟩"]
    size = len(words)
    browser.point("#heat canvas", 2.5 / size, 1.5 / size)
    row, column, share = browser.evaluate(
        "[...document.querySelectorAll('#readout b')].map(b => b.textContent)"
    )
    assert (row, column) == ("“two”", "“three”")
    weight = browser.evaluate(f"weights.encoder[(1 * {HEADS} + 2) * {size * size} + {size} + 2]")
    assert float(share.removesuffix(" %")) == pytest.approx(100 * weight, abs=0.5)
    assert browser.evaluate(
        "[...document.querySelectorAll('#heat .token.on')].map(t => t.textContent)"
    ) == [
        "two",
        "three",
    ]
    browser.point("#heads button:nth-child(2)", click=True)
    assert shown(browser)["heads"] == "1,3"


def test_the_keyboard_reaches_all_controls(browser: Browser, page: Path) -> None:
    browser.open(page, "#kind=cross&layer=1&heads=1&sentence=1")
    browser.evaluate("document.body.focus()")
    reached = []
    for _ in range(20):
        browser.press("Tab")
        reached.append(
            browser.evaluate(
                "(e => e.closest('#grid, #heads')?.id ?? (e.id || e.name || "
                "e.tagName))(document.activeElement)"
            )
        )
        if reached[-1] == "grid":
            browser.press("ArrowRight")
            browser.press("ArrowDown")
        if reached[-1] == "heat":
            break
    assert reached == [
        "sentence",
        "next",
        "kind",
        "grid",
        "view",
        *["heads"] * 4,
        "scaling",
        "name",
        "heat",
    ]
    assert (shown(browser)["layer"], shown(browser)["heads"]) == ("2", "2")
    browser.press("ArrowDown")
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    last = browser.evaluate(
        "[...document.querySelectorAll('#heat .token.on')].map(t => t.textContent)"
    )
    assert last[1] == "two"
    assert browser.evaluate("document.getElementById('cursor').hidden") is False


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_weights_in_light_and_dark(
    browser: Browser, page: Path, scheme: str
) -> None:
    """The largest weight has the most contrast with the background, the smallest the least."""
    browser.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    browser.open(page, "#kind=encoder&layer=1&heads=1&scale=own")
    paper, ink, cells, weights = browser.evaluate(
        """(() => { const c = document.querySelector('#heat canvas');
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const style = getComputedStyle(document.body);
        const grey = n => (n.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b)) / 3;
        const mean = (_, i) => (d[4 * i] + d[4 * i + 1] + d[4 * i + 2]) / 3;
        const cells = Array.from({length: d.length / 4}, mean);
        return [grey(style.backgroundColor), grey(style.color), cells, [...mean()]]; })()"""
    )
    assert (paper > 200) == (scheme == "light")
    assert abs(paper - ink) > 150
    distances = [abs(cell - paper) for cell in cells]
    order = sorted(range(len(weights)), key=weights.__getitem__)
    assert distances[order[-1]] == max(distances)
    assert distances[order[0]] == min(distances)
    assert max(distances) > 100


def test_a_model_with_one_attention_has_no_choice_of_kinds_layers_and_heads(
    browser: Browser, tmp_path: Path
) -> None:
    model = saved(tmp_path / "gnmt", name="gnmt", tie_embeddings=True)
    browser.open(page_of(model, tmp_path / "page.html"), "#kind=encoder&view=heat")
    assert shown(browser)["kind"] == "cross"
    assert browser.evaluate("document.getElementById('problem').hidden")
    visible = (
        "[...document.querySelectorAll('fieldset, section, #heads')].filter(e => e.offsetParent)"
    )
    assert browser.evaluate(f"{visible}.map(e => e.id)") == ["detail", "view", "scaling", "name"]
    assert (
        browser.evaluate("document.querySelector('details [data-kind=encoder]').offsetParent")
        is None
    )
    labels = browser.evaluate(
        "[...document.querySelectorAll('#heat .token')].map(t => t.textContent)"
    )
    assert labels[-len(WORDS.split()) - 1 :] == [*WORDS.split(), "⟨end⟩"]
    assert [
        e for e in browser.events if e["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")
    ] == []
