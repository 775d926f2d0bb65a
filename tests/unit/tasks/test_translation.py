"""The translation task: files to ids and back, saving and loading."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

from nmt_cli.annexes.search.prefixes import continuations_of, encode_prefix
from nmt_cli.data.subwords import KINDS
from nmt_cli.errors import DataError, UsageError
from nmt_cli.interfaces import UNK
from nmt_cli.task import Example
from nmt_cli.tasks import translation
from nmt_cli.tasks.translation import TranslationConfig, TranslationTask

PAIRS = [
    ("It's a dog, isn't it?", "Das ist ein Hund, nicht wahr?"),
    ("A small dog runs (fast).", "Ein kleiner Hund läuft (schnell)."),
    ("Two dogs run in the Park.", "Zwei Hunde laufen im Park."),
] * 3


def build_task(**settings: Any) -> TranslationTask:
    values = {"source_lang": "en", "target_lang": "de", "vocab_size": 60, **settings}
    return TranslationTask(TranslationConfig(**values))


def learned(pairs: Sequence[tuple[str, str]] = PAIRS, **settings: Any) -> TranslationTask:
    task = build_task(**settings)
    task.learn([task.normalise(Example(source, target, "")) for source, target in pairs])
    return task


def test_joint_vocabulary_is_one_and_separate_ones_are_two() -> None:
    joint, separate = learned(), learned(separate_vocabularies=True, vocab_size=40)
    assert joint.shared_vocabulary
    assert joint.encode_source("Hund") == joint.encode_target("Hund")
    assert not separate.shared_vocabulary
    assert (separate.source_vocabulary_size, separate.target_vocabulary_size) == (40, 40)
    assert "ä" not in "".join(separate.source_tokens(range(40)))
    assert "ä" in "".join(separate.target_tokens(range(40)))


@pytest.mark.parametrize("escape", [False, True])
def test_moses_is_undone_in_the_output(escape: bool) -> None:
    task = learned(moses=True, moses_escape=escape, subwords="none")
    tokens = ["It", "&apos;s" if escape else "'s", "a", "dog", ","]
    assert task.source_tokens(task.encode_source("It's a dog, isn't it?"))[:5] == tokens
    target = PAIRS[0][1]
    assert task.decode_target(task.encode_target(target), "") == target


def test_a_prefix_is_tokenised_like_a_target() -> None:
    task = learned(moses=True, lowercase=True, subwords="none")
    words = task.encode_target("Das ist")
    assert encode_prefix(task, " Das  ist EIN Hu") == ([*words, *task.encode_target("ein")], "▁hu")
    assert encode_prefix(task, "Das ist ") == (words, "▁")
    assert encode_prefix(task, "Das ist") == (words[:1], "▁ist")
    assert task.target_tokens(list(continuations_of(task, "▁hu"))) == ["hund", "hunde"]


FORMS = {
    "no-break spaces": ("Das\u00a0ist ein\u202fHund", "Das ist ein Hund"),
    "NFD": ("der Hund la\u0308uft", "der Hund läuft"),
    "full width": ("Ｚｗｅｉ Ｈｕｎｄｅ", "Zwei Hunde"),
    "ligature": ("au\ufb00allen", "auffallen"),
    "zero-width space and byte-order mark": (
        "\ufeffein Hu\u200bnd \u200b im\ufeff Park",
        "ein Hund im Park",
    ),
    "spaces": ("  ein\u00a0  Hund \t", "ein Hund"),
    "soft hyphen, word joiner, marks of direction": (
        "\u2067e\u00adin\u2069 \u202aHu\u2060nd\ufe0f",
        "ein Hund",
    ),
    "controls": ("ein\tHu\x01nd", "ein Hund"),
}


@pytest.mark.parametrize(
    "settings", [*({"subwords": kind} for kind in KINDS), {"moses": True, "lowercase": True}]
)
def test_every_form_of_a_character_has_the_same_ids(settings: dict[str, Any]) -> None:
    pairs = [*PAIRS, *((plain, plain) for _, plain in FORMS.values())]
    task, raw = (
        learned(pairs, vocab_size=50, normalization=rule, **settings)
        for rule in ("nmt_nfkc", "none")
    )
    odd, plain = (list(forms) for forms in zip(*FORMS.values(), strict=True))
    for line, expected in FORMS.values():
        assert task.normalise(Example(line, line, "")) == task.normalise(
            Example(expected, expected, "")
        )
        assert task.encode_source(line) == task.encode_target(line) == task.encode_source(expected)
        assert UNK not in task.encode_source(line)
        assert encode_prefix(task, f"\u200b{line}\u00a0") == encode_prefix(task, f"{expected} ")
        assert task.tokenised([line], 0) == task.tokenised([expected], 0)
        assert raw.encode_source(expected) == task.encode_source(expected)
    assert task.encode_source("\ufeff\u200b\u200e") == []
    assert task.encode_source("\u200bzwei Hunde\u200b") == task.encode_source("zwei Hunde")
    for encode in (task.encode_sources, task.encode_targets):
        assert [part.tolist() for part in encode(odd)] == [part.tolist() for part in encode(plain)]
    assert raw.encode_source("Ｚｗｅｉ Ｈｕｎｄｅ") != raw.encode_source("Zwei Hunde")


def test_parts_of_a_syllable_are_characters_and_outputs_are_composed() -> None:
    """So a syllable that the training text lacks has no unknown character."""
    task = learned([("각", "독")], subwords="character", vocab_size=30, normalization="nfd")
    assert UNK not in task.encode_source("곡") + task.encode_target("곡")
    assert len(task.encode_target("독")) == 1 + len("ㄷㅗㄱ")
    assert task.decode_target(task.encode_target("곡 독"), "") == "곡 독"


def test_output_is_one_line() -> None:
    task = build_task(subwords="none")
    task.learn([("a\nb", "c\rd e")])
    assert task.decode_target(range(4, task.target_vocabulary_size), "").count("\n") == 0
    assert task.decode_target(range(4, task.target_vocabulary_size), "").count("\r") == 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content.update(vocabularies=None),
        lambda content: content["vocabularies"]["source"].update(file="../../../etc/passwd"),
        lambda content: content["vocabularies"]["source"].update(sha256="0"),
    ],
)
def test_damaged_vocabularies_are_refused(tmp_path: Path, damage: Any) -> None:
    learned().save(tmp_path)
    path = tmp_path / "task.json"
    content = json.loads(path.read_text())
    damage(content)
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match=str(tmp_path)):
        TranslationTask.load(tmp_path)


def test_a_vocabulary_is_adopted_with_its_settings() -> None:
    saved = learned(moses=True, lowercase=True, subwords="wordpiece", normalization="none")
    task = build_task(vocab_size=10000)
    task.adopt(saved)
    assert task.config == dataclasses.replace(saved.config, vocab_size=60)
    assert task.shared_vocabulary


@pytest.mark.parametrize("separate", [True, False])
def test_vocabularies_are_adopted_by_language(separate: bool) -> None:
    saved = learned(separate_vocabularies=separate)
    reverse = build_task(source_lang="de", target_lang="en")
    reverse.adopt(saved)
    assert reverse.encode_source("ein Hund") == saved.encode_target("ein Hund")
    assert reverse.encode_target("a dog") == saved.encode_source("a dog")
    assert reverse.shared_vocabulary is not separate
    with pytest.raises(UsageError, match=r"en and de.* en and fr"):
        build_task(target_lang="fr").adopt(saved)


@pytest.mark.parametrize(
    ("settings", "flag"),
    [({"subwords": "unigram"}, "--subwords unigram"), ({"vocab_size": 61}, "--vocab-size 61")],
)
def test_settings_that_contradict_a_vocabulary_are_refused(
    settings: dict[str, Any], flag: str
) -> None:
    with pytest.raises(UsageError, match=f"{flag} contradicts --subwords-from"):
        build_task(**{"vocab_size": 10000, **settings}).adopt(learned())


def test_a_default_given_by_the_user_is_not_changed() -> None:
    saved = learned(subwords="wordpiece")
    build_task(vocab_size=10000).adopt(saved)
    with pytest.raises(
        UsageError,
        match=r"--subwords bpe .*--subwords-from.*wordpiece",
    ):
        build_task(vocab_size=10000).adopt(saved, chosen={"subwords"})


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("a dog", "ein Hund", None),
        ("a\0dog", "ein Hund", "NUL byte"),
        ("", "\0", "NUL byte"),
        ("a dog", "", "empty"),
        (" \u00a0\t\x85", "ein Hund", "empty"),
        ("ww " * 250, "ww " * 250, None),
        ("w " * 251, "w " * 250, "too long"),
        ("w " * 250, "w " * 251, "too long"),
        ("w" * 2500, "w" * 2500, None),
        ("w" * 2501, "w" * 2500, "too long"),
        ("w" * 2500, "w" * 2501, "too long"),
        ("w" * 50, "w" * 10, None),
        ("w" * 51, "w" * 10, "length ratio"),
        ("w" * 10, "w" * 51, "length ratio"),
        ("w" * 10 + " " * 50, "w" * 10, None),
        # Seven words against one: fused German is no reason to drop a pair.
        (
            "four hundred thousand two hundred thirty-one",
            "vierhunderttausendzweihunderteinunddreißig",
            None,
        ),
        ("same", "same", None),
    ],
)
def test_first_reason_that_holds(source: str, target: str, reason: str | None) -> None:
    assert build_task().rejection(Example(source, target, "")) == reason


@pytest.mark.parametrize(
    ("source", "target", "settings", "reason"),
    [
        ("a b c d", "d e f", {"max_words": 3, "ratio_unit": "words"}, "too long"),
        ("a" * 21, "b" * 20, {"max_characters": 20}, "too long"),
        ("a b c", "aaaaaaaaaaaaaaaaa b", {"max_ratio": 1.5, "ratio_unit": "words"}, None),
        ("a b c d", "a b", {"max_ratio": 1.5, "ratio_unit": "words"}, "length ratio"),
        ("Berlin ", "Berlin", {"drop_identical": True}, "source equals target"),
        ("Berlin", "berlin", {"drop_identical": True}, None),
        ("w " * 9999, "w", {"max_words": 0, "max_characters": 0, "max_ratio": 0}, None),
    ],
)
def test_cleaning_follows_the_config(
    source: str, target: str, settings: dict[str, Any], reason: str | None
) -> None:
    assert build_task(**settings).rejection(Example(source, target, "")) == reason


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"source_lang": ""}, "--source-lang is needed"), ({"target_lang": "en"}, "both 'en'")],
)
def test_languages_are_needed(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_task(**settings).files("train")


def test_reading_a_prefix(tmp_path: Path) -> None:
    (tmp_path / "t.en").write_text("a\nb\n")
    (tmp_path / "t.de").write_text("x\ny\n")
    sizes: list[int] = []
    examples = list(build_task().read(str(tmp_path / "t"), sizes.append))
    assert [(e.source, e.target) for e in examples] == [("a", "x"), ("b", "y")]
    assert sum(sizes) == 8
    with pytest.raises(DataError, match=r"u\.en: no such file"):
        build_task().files(str(tmp_path / "u"))


def test_bleu_is_sacrebleus_13a() -> None:
    task, hypotheses = build_task(), ["The dog runs, doesn't it?", "Zwei Hunde laufen."]
    references = ["The dog runs, doesn't he?", "Zwei Hunde laufen im Park."]
    # The figure is the command's: sacrebleu REFERENCE -i HYPOTHESES -b -w 12
    assert task.evaluate(hypotheses, references) == {
        "bleu": pytest.approx(50.865330012869, abs=1e-11),
        "exact": 0.0,
    }
    assert task.evaluate(references, references) == pytest.approx({"bleu": 100.0, "exact": 100.0})
    lowered = [line.lower() for line in references]
    assert build_task(lowercase=True).evaluate(lowered, references) == pytest.approx(
        {"bleu": 100.0, "exact": 100.0}
    )
    assert task.evaluate([references[0], *lowered[1:]], references)["exact"] == 50.0
    assert task.evaluate(lowered, references)["bleu"] < 90
    # One text, as `nmt score --metric exact` has it.
    assert task.evaluate(["\u00e9"], ["e\u0301 "])["exact"] == 100.0


def test_bleu_of_chinese_and_thai_is_not_of_words_between_spaces() -> None:
    hypotheses = ["我们到公园去散步。", "他买了一本书。"]
    references = ["我们去公园散步。", "他买了一本新书。"]
    for language, tokenization in (("zh", "zh"), ("th", "char")):
        task = build_task(target_lang=language)
        assert task.tokenization == tokenization
        expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenization).score
        assert expected > 40
        assert task.evaluate(hypotheses, references)["bleu"] == pytest.approx(expected, abs=1e-9)


def test_golden_ids() -> None:
    """A saved vocabulary gives the same ids in every version.

    This one was saved before there was --normalization.
    """
    task = TranslationTask.load(Path(__file__).parent / "golden_translation")
    assert task.config.normalization == "none"
    assert task.encode_source("Ｚｗｅｉ") != task.encode_source("Zwei")
    golden = json.loads(
        (Path(__file__).parent / "golden_translation" / "ids.json").read_text(encoding="utf-8")
    )
    assert len(golden) == len(translation._PROBES) + len(PAIRS[:3])
    for line, ids in golden.items():
        assert task.encode_source(line) == ids["source"]
        assert task.encode_target(line) == ids["target"]
        assert task.decode_target(ids["target"], line) == ids["text"]


def test_a_task_of_version_1_0_keeps_its_normalization(tmp_path: Path) -> None:
    """nmt 1.0 made the task and the ids of lines with invisible characters and several spaces."""
    folder = Path(__file__).parent / "golden_version_1"
    task = TranslationTask.load(folder)
    golden = json.loads((folder / "ids.json").read_text(encoding="utf-8"))
    assert len(golden) == 7
    for line, (source, target, prefix) in golden.items():
        assert [
            task.encode_source(line),
            task.encode_target(line),
            list(encode_prefix(task, line)),
        ] == [
            source,
            target,
            prefix,
        ]
    adopting = build_task(vocab_size=10000)
    adopting.adopt(task)
    adopting.save(tmp_path)
    again = TranslationTask.load(tmp_path)
    assert again.config.normalization_version == task.config.normalization_version == 1
    assert (
        again.encode_source("a  dog") == task.encode_source("a  dog") != task.encode_source("a dog")
    )
    assert build_task().config.normalization_version == 2
    assert again.difference(learned()) is not None


def test_a_version_of_the_normalization_that_is_newer_is_refused(tmp_path: Path) -> None:
    learned().save(tmp_path)
    path = tmp_path / "task.json"
    content = json.loads(path.read_text())
    content["config"]["normalization_version"] = 3
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="normalization_version must be at most 2"):
        TranslationTask.load(tmp_path)


def test_spaces_at_the_end_of_a_prefix_end_its_last_word() -> None:
    task = learned(vocab_size=70)
    assert encode_prefix(task, "\u2060Zwei  Hunde ") == encode_prefix(task, "Zwei Hunde ")
    assert encode_prefix(task, "Zwei Hunde ") == (task.encode_target("Zwei Hunde"), "▁")
