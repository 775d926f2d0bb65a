"""Hostile models of other programs, files of runs, requests and sentences: read, or rejected."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from asgi_client import Client
from fuzzing import copied, counts, fuzz, mangled, odd_values, outcome, tampered
from hypothesis import given
from hypothesis import strategies as st

import nmt_cli
from nmt_cli import registry
from nmt_cli.annexes.exchange.importing.importers import read_model
from nmt_cli.annexes.exchange.importing.options import ImportOptions
from nmt_cli.annexes.report.outputs import recorded
from nmt_cli.annexes.report.runs import read_run
from nmt_cli.annexes.serving.app import application
from nmt_cli.annexes.serving.limits import Limits
from nmt_cli.annexes.serving.queue import TranslationQueue
from nmt_cli.decoding.around import Chain
from nmt_cli.decoding.outputs import Output, Translation

EXCHANGE = Path(__file__).resolve().parent.parent / "annexes" / "exchange"
MODELS = {
    "fairseq": (EXCHANGE / "fairseq" / "tiny", "checkpoint_best.pt", "bpe.codes"),
    "opennmt": (EXCHANGE / "opennmt" / "tiny", "model_step_250.pt", "joint.model"),
}


@pytest.fixture(autouse=True)
def components() -> None:
    registry.discover()


def options_of(saved: dict[str, Any]) -> dict[str, Any]:
    """The options that the program keeps in its checkpoint."""
    return vars(saved["cfg"]["model"] if "cfg" in saved else saved["opt"])


@fuzz(25, 4000)
@given(data=st.data())
@pytest.mark.parametrize("program", MODELS)
def test_models_of_other_programs(tmp_path: Path, program: str, data: st.DataObject) -> None:
    """With other options, other weights, or other bytes in one of its files."""
    original, name, subwords = MODELS[program]
    folder = copied(original, tmp_path / "model")
    file = folder / name
    match data.draw(st.sampled_from(["options", "weights", "bytes"])):
        case "bytes":
            changed = folder / data.draw(
                st.sampled_from(sorted(path.name for path in folder.iterdir()))
            )
            changed.write_bytes(data.draw(mangled(changed.read_bytes())))
        case part:
            saved = torch.load(file, weights_only=False)
            if part == "options":
                options = options_of(saved)
                options |= data.draw(
                    tampered({key: value for key, value in options.items() if is_json(value)})
                )
            else:
                weights = saved["model"]
                key = data.draw(st.sampled_from(sorted(weights)))
                weights[key] = data.draw(
                    odd_values | st.sampled_from([torch.zeros(3), torch.zeros(2, 0, 2)])
                )
            torch.save(saved, file)
    options = ImportOptions(
        path=file,
        out=tmp_path / "out",
        source_lang="en",
        target_lang="de",
        subwords=folder / subwords,
    )
    outcome(lambda: read_model(file, options), folder / "a file")


def is_json(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, dict))


@fuzz(25, 4000)
@given(data=st.data())
@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "summary.json"])
def test_files_of_a_run(whole: Path, tmp_path: Path, name: str, data: st.DataObject) -> None:
    """What `nmt report` shows of them."""
    run = copied(whole, tmp_path / "run")
    lines = (
        (run / name).read_text().splitlines()
        if name == "metrics.jsonl"
        else [(run / name).read_text()]
    )
    which = data.draw(st.integers(0, len(lines) - 1))
    # As with --show.
    examples = {"examples": [{"source": "one", "reference": "eins", "output": "zwei"}]}
    lines[which] = json.dumps(data.draw(tampered(json.loads(lines[which]) | examples)))
    content = "".join(f"{line}\n" for line in lines).encode()
    (run / name).write_bytes(data.draw(st.just(content) | mangled(content)))
    outcome(lambda: (read_run(run).for_page(), recorded(read_run(run))), run / name)


def echo(texts: list[str]) -> list[Translation]:
    return [
        Translation(text, [Output(text, -1.0, [], [])], len(text), truncated=False)
        for text in texts
    ]


@fuzz(50, 20_000)
@given(
    path=st.sampled_from(["/translate", "/translate/batch"]),
    body=mangled(b'{"texts": ["a b", "c"]}')
    | tampered({"text": "a"}).map(lambda value: json.dumps(value).encode()),
)
def test_requests(path: str, body: bytes) -> None:
    """Every request has an answer in JSON, and none is an internal error."""
    counts["inputs"] += 1
    app = application(
        TranslationQueue(echo, parallel=1, largest=8, characters=1000), Limits(), chain=Chain()
    )
    answer = asyncio.run(Client(app).ask("POST", path, [body]))
    assert answer.code in (200, 400, 413), answer
    assert list(answer.json) in (["error"], ["translation", "score"], ["translations"])


@pytest.fixture(scope="module")
def translate(model: Path) -> Callable[[list[str]], list[Any]]:
    return nmt_cli.load(model, device="cpu", beam=2, max_length_offset=2).translate_window


@fuzz(10, 5000)
@given(
    lines=st.lists(
        st.text(st.characters(exclude_characters="\n"), max_size=40), min_size=1, max_size=8
    )
)
def test_sentences(translate: Callable[[list[str]], list[Any]], lines: list[str]) -> None:
    """Any characters, alone and among others: a line has the same translation."""
    counts["inputs"] += len(lines)
    together = [translation.outputs[0].text for translation in translate(lines)]
    assert together[0] == translate(lines[:1])[0].outputs[0].text
    assert not any("\n" in text for text in together)
