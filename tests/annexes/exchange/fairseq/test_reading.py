"""Imported models of fairseq compute what fairseq 0.12.2 computes.

`tiny/` has a model that it trained, without the optimizer's state, and its greedy outputs and their
log-probabilities.
"""

from __future__ import annotations

import json
import shutil
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from imported_models import Run, check_import, imported, log_probabilities
from reference_transformer import FAIRSEQ, Reference, halves

from nmt_cli import checkpoint

TINY = Path(__file__).parent / "tiny"
EXAMPLES = json.loads((TINY / "expected.json").read_text("utf-8"))
CODES = ("--subwords", TINY / "bpe.codes")


@pytest.fixture
def saved() -> dict[str, Any]:
    return torch.load(TINY / "checkpoint_best.pt", weights_only=False)


@pytest.fixture
def changed(saved: dict[str, Any], tmp_path: Path) -> Callable[..., Path]:
    """Writes the tiny model with other options and weights that `change` has changed."""

    def write(
        change: Callable[[dict[str, Any]], None] = lambda weights: None, **options: Any
    ) -> Path:
        for path in TINY.glob("dict.*"):
            shutil.copy(path, tmp_path)
        vars(saved["cfg"]["model"]).update(options)
        change(saved["model"])
        torch.save(saved, tmp_path / "changed.pt")
        return tmp_path / "changed.pt"

    return write


def test_a_trained_model_translates_and_scores_as_there(nmt: Run, tmp_path: Path) -> None:
    check_import(nmt, TINY / "checkpoint_best.pt", tmp_path / "imported", CODES, EXAMPLES)
    assert (
        checkpoint.read_contents(tmp_path / "imported").sections["model"]["name"] == "transformer"
    )


def test_text_that_is_split_already(nmt: Run, changed: Callable[..., Path]) -> None:
    model, task = imported(nmt, changed())
    example = EXAMPLES[0]
    log_probs = log_probabilities(model, task, example["pieces"], example["output_pieces"])
    assert log_probs == pytest.approx(example["log_probabilities"], abs=1e-4)
    assert (
        task.decode_target(task.encode_target(example["output_pieces"]), "")
        == example["output_pieces"]
    )


def test_moses_and_lowercase(nmt: Run, changed: Callable[..., Path]) -> None:
    _, task = imported(nmt, changed(), *CODES, "--moses", "--moses-escape", "--lowercase")
    assert task.encode_source("The DOG finds, today?") == task.vocabularies()[0].encode(
        "the dog finds , today ?"
    )
    assert task.decode_target(task.encode_target("ALTE?"), "") == "alte?"


def _noisy(weights: dict[str, Any]) -> None:
    for name, tensor in weights.items():
        if tensor.dim() and "version" not in name:
            tensor.add_(
                0.2 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(len(name)))
            )
    shared = weights["encoder.embed_tokens.weight"]
    weights["decoder.embed_tokens.weight"] = weights["decoder.output_projection.weight"] = shared


def _untied(weights: dict[str, Any]) -> None:
    _noisy(weights)
    for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        weights[name] = torch.randn(
            weights[name].shape, generator=torch.Generator().manual_seed(len(name))
        )


def _pre_norm(weights: dict[str, Any]) -> None:
    _untied(weights)
    generator = torch.Generator().manual_seed(3)
    weights |= {
        f"{side}.layer_norm.{kind}": torch.randn(16, generator=generator)
        for side in ("encoder", "decoder")
        for kind in ("weight", "bias")
    }


def _learned(weights: dict[str, Any]) -> None:
    _noisy(weights)
    for side, rows in (("encoder", 66), ("decoder", 34)):
        weights[f"{side}.embed_positions.weight"] = torch.randn(
            rows, 16, generator=torch.Generator().manual_seed(rows)
        )


PRE = {"encoder_normalize_before": True, "decoder_normalize_before": True}


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (_noisy, {}),
        (_untied, {}),
        (_noisy, {"no_scale_embedding": True}),
        (_noisy, {"no_token_positional_embeddings": True}),
        (_learned, {"encoder_learned_pos": True, "decoder_learned_pos": True}),
        (_pre_norm, {**PRE, "activation_fn": "gelu"}),
    ],
)
def test_variants(
    nmt: Run,
    changed: Callable[..., Path],
    saved: dict[str, Any],
    change: Any,
    options: dict[str, Any],
) -> None:
    model, task = imported(nmt, changed(change, **options), *CODES)
    weights = saved["model"]
    words = [line.split(" ")[0] for line in (TINY / "dict.en.txt").read_text("utf-8").splitlines()]
    ids = {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *words])}
    source, target = (
        [ids[piece] for piece in EXAMPLES[0][side].split(" ")]
        for side in ("pieces", "output_pieces")
    )
    activation = torch.nn.functional.gelu if options.get("activation_fn") == "gelu" else torch.relu
    reference = Reference(
        weights, FAIRSEQ, 2, pre_norm="encoder_normalize_before" in options, activation=activation
    )
    states = []
    for side, tokens in (("encoder", [*source, 2]), ("decoder", [2, *target])):
        x = weights[f"{side}.embed_tokens.weight"][tokens] * (
            1 if options.get("no_scale_embedding") else 4
        )
        if "encoder_learned_pos" in options:
            x = x + weights[f"{side}.embed_positions.weight"][2 : 2 + len(tokens)]
        elif "no_token_positional_embeddings" not in options:
            x = x + halves(2, len(tokens), 16)
        states.append(reference.stack(x, *states))
    expected = (states[1] @ weights["decoder.output_projection.weight"].T).log_softmax(1)[
        range(len(target) + 1), [*target, 2]
    ]
    log_probs = log_probabilities(model, task, EXAMPLES[0]["source"], EXAMPLES[0]["output"])
    assert log_probs == pytest.approx(expected.tolist(), abs=1e-4)


def _old(weights: dict[str, Any]) -> None:
    """One matrix for queries, keys and values, and no output matrix."""
    for name in [name for name in weights if "q_proj" in name]:
        parts = [weights.pop(name.replace("q_proj", f"{letter}_proj")) for letter in "qkv"]
        weights[name.replace("q_proj.", "in_proj_")] = torch.cat(parts)
    copies = [name for name in weights if "layers.0.fc1_" in name or "layers.0.in_proj_" in name]
    for name in [*copies, "decoder.output_projection.weight"]:
        del weights[name]


@pytest.mark.parametrize("nested", [True, False])
def test_other_versions(
    nmt: Run, changed: Callable[..., Path], saved: dict[str, Any], nested: bool
) -> None:
    """Older files have all options in `args`.

    In newer ones, the options of encoder and decoder may have sections.
    """
    path = changed(_old)
    task, model = saved["cfg"]["task"], vars(saved["cfg"]["model"])
    if nested:
        for side in ("encoder", "decoder"):
            side_weights = {
                name: model.pop(name) for name in list(model) if name.startswith(f"{side}_")
            }
            model[side] = {
                name.removeprefix(f"{side}_"): value for name, value in side_weights.items()
            }
        saved["cfg"]["model"] = {"_name": "transformer", **model}
    else:
        saved |= {"cfg": None, "args": Namespace(**{**model, **task, "task": "translation"})}
    torch.save(saved, path)
    model_and_task = imported(nmt, path, *CODES)
    for example in EXAMPLES[:3]:
        scores = log_probabilities(*model_and_task, example["source"], example["output"])
        assert scores == pytest.approx(example["log_probabilities"], abs=1e-4)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"arch": "lightconv"}, "architecture is 'lightconv'"),
        ({"activation_fn": "gelu_accurate"}, "activation_fn is 'gelu_accurate'"),
        (
            {"encoder_attention_heads": 4},
            "encoder_attention_heads and decoder_attention_heads differ: [4, 2]",
        ),
        (
            {"decoder_normalize_before": True},
            "encoder_normalize_before and decoder_normalize_before differ: [False, True]",
        ),
        ({**PRE, "no_decoder_final_norm": True}, "its no_decoder_final_norm is True"),
        *[
            ({name: value}, f"its {name} is {value!r}")
            for name, value in {
                "cross_self_attention": True,
                "no_cross_attention": True,
                "adaptive_softmax_cutoff": [5],
                "encoder_layers_to_keep": "0",
                "quant_noise_scalar": 0.5,
                "scale_heads": True,
            }.items()
        ],
        ({"encoder_learned_pos": True}, "encoder.embed_positions.weight"),
        (
            {"max_source_positions": 50_000_000},
            "max_source_positions is 50000000, expected at most 2097152",
        ),
        ({"max_target_positions": 10**30}, "max_target_positions"),
        ({"max_target_positions": -1}, "max_target_positions"),
        ({"arch": ["transformer"]}, "architecture is"),
    ],
)
def test_other_settings_are_refused(
    nmt: Run, changed: Callable[..., Path], options: dict[str, Any], named: str
) -> None:
    path = changed(**options)
    code, _, err = nmt("import", path, "--out", path.parent / "imported")
    assert code == 1
    assert str(path) in err
    assert named in err
    assert not (path.parent / "imported").exists()


def test_harmless_settings(nmt: Run, changed: Callable[..., Path]) -> None:
    path = changed(
        no_decoder_final_norm=True, decoder_layerdrop=0.1, quant_noise_pq=0.1, rope=True, new=0
    )
    code, _, err = nmt("import", path, "--out", path.parent / "imported")
    assert code == 0
    assert err.startswith(
        f"warning: {path}: settings that nmt does not know, and does not use: ['rope']\n"
    )


def test_unknown_settings_of_older_files(
    nmt: Run, saved: dict[str, Any], changed: Callable[..., Path]
) -> None:
    """They have all options of a command in one record."""
    path = changed(
        task="translation",
        source_lang="en",
        target_lang="de",
        clip_norm=25.0,
        own_gate=True,
        logs="x",
    )
    args = saved["cfg"]["model"]
    del args._name
    torch.save({**saved, "cfg": None, "args": args}, path)
    code, _, err = nmt("import", path, "--out", path.parent / "imported")
    assert code == 0
    assert "does not use: ['own_gate']\n" in err


@pytest.mark.parametrize("language", ["x/../../secret", "..", "/etc/x", "a\0\x1b[2J", None])
def test_a_language_is_no_path(
    nmt: Run, changed: Callable[..., Path], saved: dict[str, Any], tmp_path: Path, language: Any
) -> None:
    (tmp_path / "dict.x").mkdir()
    (tmp_path.parent / "secret.txt").write_text("password 1\n")
    saved["cfg"]["task"]["source_lang"] = language
    path = changed()
    code, _, err = nmt("import", path, "--out", tmp_path / "imported")
    assert code == 2
    assert "--source-lang" in err
    assert "\x1b" not in err
    assert not (tmp_path / "imported").exists()


def test_tags_stay_whole(nmt: Run, changed: Callable[..., Path], tmp_path: Path) -> None:
    """As entries of a dictionary that were put before lines after these had been split."""

    def longer(weights: dict[str, Any]) -> None:
        shared = weights["encoder.embed_tokens.weight"]
        for side in ("encoder", "decoder"):
            weights[f"{side}.embed_tokens.weight"] = torch.cat([shared, torch.ones(3, 16)])
        weights["decoder.output_projection.weight"] = weights["decoder.embed_tokens.weight"]

    path = changed(longer)
    for language in ("en", "de"):
        with (tmp_path / f"dict.{language}.txt").open("a", encoding="utf-8") as stream:
            stream.write("<2de> 1\n__fr__ 1\nmadeupword0000 0\n")
    codes = tmp_path / "codes"
    codes.write_bytes(b"\xef\xbb\xbf" + (TINY / "bpe.codes").read_bytes().replace(b"\n", b"\r\n"))
    code, _, err = nmt(
        "import",
        path,
        "--out",
        tmp_path / "imported",
        "--subwords",
        codes,
        "--moses",
        "--lowercase",
    )
    assert code == 0
    assert "kept whole: ['<2de>', '__fr__']\n" in err
    assert "changes ['__fr__']" in err
    task = checkpoint.load_task(tmp_path / "imported" / "task")
    pieces = EXAMPLES[0]["pieces"].split(" ")
    assert task.source_tokens(task.encode_source(f"<2de> {EXAMPLES[0]['source']}")) == [
        "<2de>",
        *pieces,
    ]
    assert task.symbols == ["<2de>"]
    (tmp_path / "in").write_text(EXAMPLES[0]["source"] + "\n")
    code, out, err = nmt(
        "translate", tmp_path / "imported", "--tag", "<2de>", "--input", tmp_path / "in"
    )
    assert (code, out.count("\n")) == (0, 1), err


@pytest.mark.parametrize(
    "name", ["encoder.layernorm_embedding.weight", "decoder.layers.0.c_attn", "", "task"]
)
def test_other_weights_and_tasks_are_refused(
    nmt: Run, changed: Callable[..., Path], saved: dict[str, Any], name: str
) -> None:
    if name == "task":
        saved["cfg"]["task"]["_name"] = "translation_multi_simple_epoch"

    def change(weights: dict[str, Any]) -> None:
        if "." in name:
            weights[name] = torch.ones(16)
        if not name:
            del weights["decoder.embed_tokens.weight"]

    path = changed(change)
    code, _, err = nmt("import", path, "--out", path.parent / "imported")
    assert code == 1
    assert (name or "decoder.embed_tokens.weight") in err


def test_missing_and_wrong_files(nmt: Run, changed: Callable[..., Path], tmp_path: Path) -> None:
    path = changed()
    command = ("import", path, "--out", path.parent / "imported")
    code, _, err = nmt(*command, "--target-lang", "fr")
    assert code == 2
    assert "dict.fr.txt: missing" in err
    (tmp_path / "codes").write_text("no model")
    code, _, err = nmt(*command, "--subwords", tmp_path / "codes")
    assert code == 2
    assert "subword-nmt's codes" in err
    with (tmp_path / "dict.en.txt").open("a") as stream:
        stream.write("more 1\n")
    code, _, err = nmt(*command)
    assert code == 1
    assert "damaged" in err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda lines: lines[:20],
            "expected 60 entries, as the checkpoint has embeddings, found 20",
        ),
        (lambda lines: [line.split(" ")[0] for line in lines], "dict.de.txt:1: expected an entry"),
        (
            lambda lines: [line.replace(" ", "\t") for line in lines],
            "dict.de.txt:1: expected an entry",
        ),
    ],
)
def test_a_wrong_dictionary_is_refused(
    nmt: Run, changed: Callable[..., Path], tmp_path: Path, wrong: Any, message: str
) -> None:
    """It would give other entries to the embeddings, or none."""
    path = changed()
    dictionary = tmp_path / "dict.de.txt"
    dictionary.write_text(
        "\n".join(wrong(dictionary.read_text("utf-8").splitlines())) + "\n", "utf-8"
    )
    code, _, err = nmt("import", path, "--out", tmp_path / "imported")
    assert code == 1
    assert message in err
    assert not (tmp_path / "imported").exists()
