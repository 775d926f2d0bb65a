"""Imported MarianMTModels compute, tokenise and translate here as in Hugging Face Transformers."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianConfig, MarianMTModel

import nmt_cli
from nmt_cli import checkpoint
from nmt_cli.annexes.exchange.importing.options import ImportOptions
from nmt_cli.annexes.exchange.marian import reading, writing
from nmt_cli.errors import CheckpointError, DataError, UsageError
from nmt_cli.interfaces import BOS, EOS, PAD, SPECIAL_SYMBOLS, UNK
from nmt_cli.weights import load_model, save_checkpoint, weights_of

Text = list[tuple[str, str]]
CODES = [">>deu<<", ">>fra<<"]


def read(folder: Path, languages: Sequence[str | None] = (None, None)) -> Any:
    options = ImportOptions(
        path=folder, out=folder, source_lang=languages[0], target_lang=languages[1]
    )
    return reading.read(folder, {}, options)


def _pieces(path: Path, lines: Sequence[str]) -> list[str]:
    """Learn a SentencePiece model with SentencePiece's own defaults.

    Return its pieces without special symbols.
    """
    stem = str(path.with_suffix(""))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=stem,
        vocab_size=80,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    Path(f"{stem}.model").rename(path)
    learned = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return [learned.id_to_piece(i) for i in range(3, learned.get_piece_size())]


def _vocab(special: Sequence[str], pieces: Sequence[str]) -> dict[str, int]:
    """Without every tenth piece."""
    pieces_with_ids = [piece for number, piece in enumerate(dict.fromkeys(pieces)) if number % 10]
    return {piece: i for i, piece in enumerate([*special, *CODES, *pieces_with_ids])}


def _folder(folder: Path, text: Text, taught: Callable[..., None], shared: bool) -> Path:
    """Write a MarianMTModel that was taught a little, with random biases, and its tokenizer."""
    source, target = (
        _pieces(folder / f"{name}.spm", lines)
        for name, lines in zip(("source", "target"), zip(*text, strict=True), strict=True)
    )
    if shared:
        vocabs = [_vocab(["</s>", "<unk>"], [*source, *target])] * 2
        vocabs[0]["<pad>"] = len(vocabs[0])
    else:
        vocabs = [_vocab(["</s>", "<unk>", "<pad>"], side) for side in (source, target)]
    for vocab, name in zip(vocabs, ("vocab.json", "target_vocab.json"), strict=True):
        (folder / name).write_text(json.dumps(vocab), encoding="utf-8")
    languages = {"source_lang": "eng", "target_lang": "deu", "separate_vocabs": not shared}
    (folder / "tokenizer_config.json").write_text(json.dumps(languages), encoding="utf-8")
    pad, sizes = vocabs[1]["<pad>"], {"ffn_dim": 24, "attention_heads": 2}
    config = MarianConfig(
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=None,
        vocab_size=len(vocabs[0]),
        decoder_vocab_size=len(vocabs[1]),
        share_encoder_decoder_embeddings=shared,
        scale_embedding=True,
        activation_function="swish",
        d_model=16,
        encoder_layers=2 if shared else 3,
        decoder_layers=2,
        **{
            f"{side}_{name}": size
            for side in ("encoder", "decoder")
            for name, size in sizes.items()
        },
    )
    torch.manual_seed(2)
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.final_logits_bias.copy_(torch.randn_like(model.final_logits_bias))
    model.save_pretrained(folder)
    sources, targets = zip(*text[:8], strict=True)
    batch = AutoTokenizer.from_pretrained(folder)(
        sources, text_target=targets, padding=True, return_tensors="pt"
    )
    batch["labels"].masked_fill_(batch["labels"] == pad, -100)
    taught(model, lambda: model(**batch).loss)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def shared(
    text: Text, taught: Callable[..., None], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """With one vocabulary, whose last piece is the padding, as in OPUS-MT."""
    return _folder(tmp_path_factory.mktemp("shared"), text, taught, shared=True)


@pytest.fixture(scope="module", params=["shared", "separate"])
def marian(
    request: pytest.FixtureRequest,
    shared: Path,
    text: Text,
    taught: Callable[..., None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of a MarianMTModel with one vocabulary, or with two."""
    if request.param == "shared":
        return shared
    return _folder(tmp_path_factory.mktemp("separate"), text, taught, shared=False)


@pytest.fixture(scope="module")
def imported(marian: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint."""
    folder, imported_model = tmp_path_factory.mktemp("imported") / "checkpoint", read(marian)
    save_checkpoint(folder, imported_model.contents, imported_model.weights, imported_model.task)
    return folder


def their_ids(task: Any, marian: Path, side: str) -> Tensor:
    """The id there of each of our ids: [V]."""
    name = "target_vocab.json" if side == "target" and not task.shared_vocabulary else "vocab.json"
    vocab = json.loads((marian / name).read_text(encoding="utf-8"))
    size = getattr(task, f"{side}_vocabulary_size")
    pieces = getattr(task, f"{side}_tokens")(range(size))
    assert pieces[: EOS + 1] == list(SPECIAL_SYMBOLS)
    assert size == len(vocab) + 1
    return torch.tensor([vocab["<pad>" if i == BOS else piece] for i, piece in enumerate(pieces)])


def test_the_ids_are_those_of_the_tokenizer(
    marian: Path, imported: Path, odd_lines: list[str]
) -> None:
    task: Any = checkpoint.load_task(imported / "task")
    assert task.languages == ("eng", "deu")
    assert task.config.normalization == "none"  # its SentencePiece models normalise
    tokenizer = AutoTokenizer.from_pretrained(marian, split_special_tokens=True)
    lines = [
        *odd_lines,
        ">>deu<< A dog.",
        ">>xyz<< A dog.",
        ">>a b<<c<<",
        ">>open",
        " >>deu<< Not first.",
    ]
    for side, expected_ids in (
        ("source", tokenizer(lines)),
        ("target", tokenizer(text_target=lines)),
    ):
        ids = their_ids(task, marian, side)
        our_ids = [ids[[*getattr(task, f"encode_{side}")(line), EOS]].tolist() for line in lines]
        assert our_ids == expected_ids["input_ids"]
        assert UNK in task.encode_source(lines[2])


@torch.inference_mode()
def test_a_batch_has_the_same_log_probabilities(marian: Path, imported: Path, text: Text) -> None:
    """BOS, which Marian's vocabulary does not have, takes no probability from the others."""
    model, task = load_model(imported)
    tokenizer = AutoTokenizer.from_pretrained(marian)
    their_model = AutoModelForSeq2SeqLM.from_pretrained(marian)
    sources, targets = (list(side) for side in zip(*text[:4], ("Old.", "Alt."), strict=True))
    batch = tokenizer(sources, text_target=targets, padding=True, return_tensors="pt")
    start = their_model.config.decoder_start_token_id
    target_in = torch.cat([torch.full((5, 1), start), batch["labels"][:, :-1]], 1)
    expected = their_model(
        batch["input_ids"], batch["attention_mask"], decoder_input_ids=target_in
    ).logits.log_softmax(-1)
    rows = {side: their_ids(task, marian, side) for side in ("source", "target")}
    our_ids = {
        side: torch.zeros(int(ids.max()) + 1, dtype=torch.long) for side, ids in rows.items()
    }
    for side, ids in rows.items():
        our_ids[side][ids] = torch.arange(len(ids))
        our_ids[side][ids[PAD]] = PAD
    our_target = our_ids["target"][target_in]
    our_target[:, 0] = BOS
    log_probs = model(our_ids["source"][batch["input_ids"]], our_target).log_softmax(-1)
    real, shared_entries = our_target != PAD, torch.arange(log_probs.size(-1)) != BOS
    torch.testing.assert_close(
        log_probs[real][:, shared_entries],
        expected[real][:, rows["target"][shared_entries]],
        rtol=1e-5,
        atol=2e-5,
    )
    assert (log_probs[real][:, BOS] < -15).all()


@pytest.mark.parametrize("beam", [1, 4])
def test_translations_are_the_same(marian: Path, imported: Path, text: Text, beam: int) -> None:
    lines = [source for source, _ in text[:8]]
    our_outputs = list(
        nmt_cli.load(imported, device="cpu").translate(
            lines, beam=beam, alpha=0.0, max_length_offset=98
        )
    )
    tokenizer = AutoTokenizer.from_pretrained(marian)
    their_model = AutoModelForSeq2SeqLM.from_pretrained(marian)
    never = [tokenizer.unk_token_id, their_model.config.pad_token_id]
    batch = tokenizer(lines, padding=True, return_tensors="pt")
    generated = their_model.generate(
        **batch, num_beams=beam, length_penalty=0.0, max_length=98, suppress_tokens=never
    )
    ended = (
        (generated[:, :-1] == their_model.config.eos_token_id).any(1).nonzero().flatten().tolist()
    )
    assert len({our_outputs[i] for i in ended}) > 1
    expected = tokenizer.batch_decode(generated, skip_special_tokens=True)
    assert [our_outputs[i] for i in ended] == [expected[i] for i in ended]


def test_an_export_of_it_is_the_same_model_again(
    imported: Path, text: Text, odd_lines: list[str], tmp_path: Path
) -> None:
    model, task = load_model(imported)
    writing.export(model, task, odd_lines[:2], tmp_path)
    imported_again = read(tmp_path)
    assert imported_again.contents.source_vocabulary_size == task.source_vocabulary_size
    assert imported_again.task.difference(task) is None
    weights = weights_of(model)
    assert weights.keys() == imported_again.weights.keys()
    assert all(
        torch.equal(weights[name], weight) for name, weight in imported_again.weights.items()
    )
    assert [imported_again.task.encode_source(line) for line in odd_lines] == [
        task.encode_source(line) for line in odd_lines
    ]


@pytest.mark.parametrize("separate", [False, True])
def test_an_exported_model_comes_back(
    build: Callable[..., tuple[Any, Any]], odd_lines: list[str], tmp_path: Path, separate: bool
) -> None:
    """Biases that it did not have are zero, and ids and logits are the same."""
    model, task = build({"separate_vocabularies": separate})
    (tmp_path / "export").mkdir()
    writing.export(model, task, odd_lines[:2], tmp_path / "export")
    imported_again = read(tmp_path / "export")
    save_checkpoint(
        tmp_path / "back", imported_again.contents, imported_again.weights, imported_again.task
    )
    again, its_task = load_model(tmp_path / "back")
    assert its_task.difference(task) == "--normalization"  # which its SentencePiece models do
    assert [its_task.encode_source(line) for line in odd_lines] == [
        task.encode_source(line) for line in odd_lines
    ]
    source = torch.tensor([[5, 6, 7, EOS], [8, EOS, PAD, PAD]])
    target = torch.tensor([[BOS, 9], [BOS, 10]])
    with torch.no_grad():
        torch.testing.assert_close(again(source, target), model(source, target), rtol=0, atol=1e-6)


@pytest.fixture
def copied(shared: Path, tmp_path: Path) -> Path:
    shutil.copytree(shared, tmp_path / "copy")
    return tmp_path / "copy"


def change(path: Path, **fields: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **fields}), encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("config.json", {"model_type": "bart"}, "its model_type is 'bart', expected 'marian'"),
        ("config.json", {"normalize_before": True}, "its normalize_before is True"),
        (
            "config.json",
            {"quantization_config": {"bits": 4}},
            "its quantization_config is {'bits': 4}",
        ),
        ("tokenizer_config.json", {"source_lang": "../en"}, "names no source_lang"),
        ("config.json", {"scale_embedding": False}, "its scale_embedding is False"),
        ("config.json", {"tie_word_embeddings": False}, "its tie_word_embeddings is False"),
        ("config.json", {"decoder_ffn_dim": 48}, "encoder_ffn_dim and decoder_ffn_dim differ"),
        ("config.json", {"activation_function": ["relu"]}, "--activation must be"),
        ("config.json", {"d_model": "wide"}, "--d-model must be of type int"),
        ("config.json", {"decoder_start_token_id": 9999}, "the first symbol of outputs"),
        ("vocab.json", {"<pad>": None}, "expected different ids"),
        ("vocab.json", {CODES[0]: -1}, "expected different ids"),
        ("vocab.json", {CODES[0]: 0}, "expected different ids"),
        ("tokenizer_config.json", {"source_lang": []}, "names no source_lang"),
    ],
)
def test_what_we_do_not_have_is_refused_by_name(
    copied: Path, name: str, fields: dict[str, Any], message: str
) -> None:
    change(copied / name, **fields)
    with pytest.raises((CheckpointError, UsageError), match=rf"{copied}.*{message}"):
        read(copied)


# No weight has their shape.
@pytest.mark.parametrize("name", ["decoder_attention_heads", "activation_function"])
def test_settings_that_are_missing_are_named(copied: Path, name: str) -> None:
    content = json.loads((copied / "config.json").read_text(encoding="utf-8"))
    del content[name]
    (copied / "config.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CheckpointError, match=f"config.json.*{name}"):
        read(copied)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("config.json", None, "config.json: cannot read this file: No such file"),
        ("vocab.json", b'{"a": 1}', "its vocabulary has no <pad>"),
        ("source.spm", None, "source.spm: cannot read this file"),
        ("source.spm", b"", "is no SentencePiece model"),
        ("model.safetensors", None, "has no weights for PyTorch"),
        ("model.safetensors", b"x", "model.safetensors: cannot read the weights"),
    ],
)
def test_missing_and_damaged_files_are_named(
    copied: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is None:
        (copied / name).unlink()
    else:
        (copied / name).write_bytes(content)
    with pytest.raises((CheckpointError, DataError), match=message):
        read(copied)


def test_weights_that_do_not_fit_are_an_error(copied: Path) -> None:
    change(copied / "config.json", encoder_layers=3, decoder_layers=3)
    with pytest.raises(CheckpointError, match=r"decoder\.2\.\S+ .*one of them only"):
        read(copied)
    change(copied / "config.json", encoder_layers=2, decoder_layers=1)
    with pytest.raises(CheckpointError, match=r"decoder\.1\.\S+ .*one of them only"):
        read(copied)


@pytest.mark.parametrize(
    ("name", "times", "message"),
    [
        (
            "model.encoder.layers.1.self_attn.q_proj.weight",
            (1, 2),
            "w_q.weight is [16, 32], expected [16, 16]",
        ),
        ("model.decoder.layers.0.fc2.bias", (2,), "feed_forward.outer.bias is [32], expected [16]"),
        ("model.shared.weight", (1, 2), "target_embedding.weight is ["),
    ],
)
def test_weights_of_another_shape_are_named(
    copied: Path, name: str, times: tuple[int, ...], message: str
) -> None:
    weights = load_file(copied / "model.safetensors")
    weights[name] = weights[name].repeat(times)
    save_file(weights, copied / "model.safetensors")
    with pytest.raises(CheckpointError, match=re.escape(message)):
        read(copied)


def test_languages_are_given_or_named(copied: Path) -> None:
    assert read(copied, (None, "de")).task.languages == ("eng", "de")
    (copied / "tokenizer_config.json").unlink()
    with pytest.raises(UsageError, match="names no source_lang: give --source-lang"):
        read(copied)
    assert read(copied, ("en", "de")).task.languages == ("en", "de")


def test_added_tokens_are_entries(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    size = len(weights["model.shared.weight"])
    weights["model.shared.weight"] = torch.cat([weights["model.shared.weight"], torch.ones(1, 16)])
    weights["final_logits_bias"] = torch.cat([weights["final_logits_bias"], torch.zeros(1, 1)], 1)
    weights = {
        name: weight
        for name, weight in weights.items()
        if "lm_head" not in name and "embed_tokens" not in name
    }
    save_file(weights, copied / "model.safetensors")
    (copied / "added_tokens.json").write_text(json.dumps({"<ph>": size}), encoding="utf-8")
    task = read(copied).task
    assert "<ph>" in task.source_tokens(task.encode_source("a <ph> b"))
    assert task.decode_target(task.encode_target("<ph>"), "<ph>") == "<ph>"


def test_weights_in_the_older_form(copied: Path) -> None:
    """They are read without unpickling anything but tensors."""
    expected = read(copied).weights
    state = AutoModelForSeq2SeqLM.from_pretrained(copied).state_dict()
    (copied / "model.safetensors").unlink()
    torch.save(state, copied / "pytorch_model.bin")
    read_weights = read(copied).weights
    assert all(torch.equal(read_weights[name], weight) for name, weight in expected.items())

    class Code:
        def __reduce__(self) -> Any:
            return print, ("this ran",)

    torch.save(Code(), copied / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin: cannot read"):
        read(copied)
