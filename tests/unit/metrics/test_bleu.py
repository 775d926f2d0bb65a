"""BLEU by every name: published scores, closed forms, counts by Perl, and properties."""

from __future__ import annotations

import csv
import gzip
import itertools
import math
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import sacrebleu

from nmt_cli.errors import DataError
from nmt_cli.files.text import read_lines
from nmt_cli.metrics.bleu import CHAIN, MEASURES, measures_of, score, score_systems

# The columns of wmt17_scores.tsv, made by Moses' scripts in Perl, and our names for them.
SACREBLEU = {
    "published_mteval_v13a": "bleu",
    "sacrebleu2.6_13a": "bleu",
}
MULTI_BLEU = {
    "multi-bleu_untokenised": "multi-bleu-untokenised",
    "multi-bleu_moses_tok": "multi-bleu",
    "multi-bleu_moses_tok_ATAT": "compound-split",
    "multi-bleu_hyp_unicodepunct_moses_tok_ATAT": "get-ende-bleu",
    "multi-bleu_lc_moses_tok": "multi-bleu-lc",
}

# Counts as multi-bleu.perl does: lines split by Perl among bytes, clipped counts, the closest
# reference's length.
COUNT_IN_PERL = r"""
my ($hyp, @refs) = @ARGV; my (@hit, @all); my ($c, $r) = (0, 0);
sub lines { open(my $f, '<', $_[0]) or die; my @l = <$f>; chomp @l; return @l }
sub grams {
  my ($n, @w) = @_; my %g;
  $g{join(' ', @w[$_ .. $_ + $n - 1])}++ for 0 .. $#w - $n + 1;
  return %g
}
my @h = lines($hyp); my @r = map { [lines($_)] } @refs;
for my $i (0 .. $#h) {
  my @w = split ' ', $h[$i];
  my @lengths = map { scalar(my @x = split ' ', $_->[$i]) } @r;
  my ($best) = sort { abs($a - @w) <=> abs($b - @w) || $a <=> $b } @lengths;
  $c += @w; $r += $best;
  for my $n (1 .. 4) {
    my %limit;
    for (@r) {
      my %g = grams($n, split ' ', $_->[$i]);
      for (keys %g) { $limit{$_} = $g{$_} if $g{$_} > ($limit{$_} // 0) }
    }
    my %g = grams($n, @w);
    for (keys %g) {
      my $l = $limit{$_} // 0;
      $all[$n] += $g{$_}; $hit[$n] += $g{$_} < $l ? $g{$_} : $l
    }
  }
}
my $log = 0; $log += log($hit[$_] / $all[$_]) / 4 for 1 .. 4;
printf "%.6f\n", 100 * exp($log + ($c < $r ? 1 - $r / $c : 0));
"""


def only(
    id: str, hypotheses: list[str], references: list[str] | list[list[str]], language: str = "de"
) -> float:
    (result,) = score(hypotheses, references, [id], language)
    return result.score


def lines(path: Path) -> list[str]:
    return gzip.decompress(path.read_bytes()).decode().removesuffix("\n").split("\n")


def test_systems_of_wmt17_score_what_is_known(shared_data: Path) -> None:
    """Four systems by sacreBLEU. One by multi-bleu.perl, since Moses' tokenizer is slow."""
    folder = shared_data / "scorer"
    with (folder / "wmt17_scores.tsv").open(encoding="utf-8") as stream:
        known = {row.pop("system"): row for row in csv.DictReader(stream, delimiter="\t")}
    for line in (folder / "published_mteval13a.txt").read_text().splitlines():
        system, value = line.split()
        known[system]["published_mteval_v13a"] = value
    assert len(known) == 16
    systems = [
        (system, lines(folder / f"wmt17_en_de/newstest2017.{system}.en-de.gz")) for system in known
    ]
    reference = lines(folder / "wmt17_en_de/reference.gz")
    for scored, columns in ((systems[::4], SACREBLEU), (systems[:1], MULTI_BLEU)):
        for result in score_systems(
            scored, [("reference", reference)], list(dict.fromkeys(columns.values()))
        ):
            for column in (column for column, metric in columns.items() if metric == result.metric):
                decimals = 4 if column == "sacrebleu2.6_13a" else 2
                value = float(known[result.system][column])
                assert f"{result.score:.{decimals}f}" == f"{value:.{decimals}f}", (
                    result.system,
                    column,
                )


def test_scores_of_lines_change_no_score_of_a_system() -> None:
    """A line's BLEU has an effective order; the BLEU of the next system has not."""
    systems = [("a", ["a b c d e", "f g h i"]), ("b", ["a b c x y", "f x y z"])]
    references = [("reference", systems[0][1])]
    metrics = ["bleu", "multi-bleu-untokenised"]
    for of_lines, whole in zip(
        score_systems(systems, references, metrics, labels=[1, 2]),
        score_systems(systems, references, metrics),
        strict=True,
    ):
        assert (of_lines.score, of_lines.signature) == (whole.score, whole.signature)


@pytest.mark.parametrize(
    ("name", "bleu", "chrf"),
    [("guarani-spanish/gn", 3.26, 0.220), ("bribri-spanish/bzd", 0.54, 0.077)],
)
def test_published_scores_of_americasnlp(
    name: str, bleu: float, chrf: float, shared_data: Path
) -> None:
    """From empty sources, and with double spaces. chrF was a share then, with three decimals."""
    folder, (pair, language) = shared_data / "tasks" / "americasnlp-2021", name.split("/")
    output = folder / f"official/baseline_outputs/{language}_es/{language}_es.hyp"
    sides = [list(read_lines(path)) for path in (output, folder / pair / f"dev.{language}")]
    scores = [result.score for result in score(*sides)]
    assert (round(scores[0], 2), round(scores[1] / 100, 3)) == (bleu, chrf)


def test_closed_forms() -> None:
    # 5 of 6 reference words: every n-gram matches, so only exp(1 - 6/5) is left.
    assert only("multi-bleu-untokenised", ["a b c d e"], ["a b c d e f"]) == pytest.approx(
        100 * math.exp(-0.2)
    )
    # The last of six words is wrong: 5/6, 4/5, 3/4, 2/3, whose product is 1/3.
    (result,) = score(["a b c d e x"], ["a b c d e f"], ["multi-bleu-untokenised"])
    assert result.score == pytest.approx(100 * (1 / 3) ** 0.25)
    assert result.details["precisions"] == pytest.approx([100 * 5 / 6, 80, 75, 100 * 2 / 3])
    assert (result.details["hypothesis_length"], result.details["reference_length"]) == (6, 6)
    # Papineni's example of clipped counts.
    (result,) = score(
        ["the the the the the the the"], ["the cat is on the mat today"], ["multi-bleu-untokenised"]
    )
    assert result.details["precisions"][0] == pytest.approx(100 * 2 / 7)
    # The closest reference counts for the brevity penalty, and the shorter of two.
    references = [["a b c d e f g"], ["a b c d"], ["a b c d e f"]]
    (result,) = score(["a b c d e"], references, ["multi-bleu-untokenised"])
    assert result.details["reference_length"] == 4
    assert result.signature.startswith("nrefs:3|")
    # A no-break space is part of its token.
    (result,) = score(["a b c d e\u00a0f"], ["a b c d e f"], ["multi-bleu-untokenised"])
    assert (result.details["hypothesis_length"], result.details["reference_length"]) == (5, 6)
    # sacreBLEU smooths and multi-bleu.perl does not.
    assert (
        only("multi-bleu-untokenised", ["a b c x"], ["a b c d"])
        == 0
        < only("bleu", ["a b c x"], ["a b c d"])
    )
    assert only("multi-bleu", ["", ""], ["a b", "c d"]) == 0


@pytest.mark.skipif(shutil.which("perl") is None, reason="needs Perl: apt install perl")
@pytest.mark.parametrize("references", [1, 3])
def test_perl_counts_the_same(references: int, tmp_path: Path) -> None:
    chance = random.Random(references)
    words = [
        "der",
        "die",
        "das",
        "Haus",
        "a\u00a0b",
        "x\u0085y",
        "\u2028",
        "z\x1cz",
        "é",
        "\u3000",
        ".",
    ]
    original = [" ".join(chance.choices(words, k=chance.randrange(14))) for _ in range(60)]
    texts = [[damaged(line, chance) for line in original] for _ in range(references + 1)]
    files = []
    for number, text in enumerate(texts):
        files.append(tmp_path / str(number))
        files[-1].write_bytes("".join(f"{line}\n" for line in text).encode())
    done = subprocess.run(
        ["perl", "-e", COUNT_IN_PERL, *map(str, files)], capture_output=True, check=True, text=True
    )
    assert only("multi-bleu-untokenised", texts[0], texts[1:]) == pytest.approx(
        float(done.stdout), abs=1e-6
    )


def damaged(line: str, chance: random.Random) -> str:
    """The line without some of its words and with another one in it."""
    words_left = [word for word in line.split(" ") if chance.random() > 0.15]
    words_left.insert(chance.randrange(len(words_left) + 1), chance.choice(["der", "das", "neu"]))
    return " ".join(words_left)


def test_sacrebleu_is_sacrebleu() -> None:
    hypotheses = ["Das ist ein kleines Haus, oder?", "Er sagte: „Ja“.", ""]
    references = ["Das ist ein kleines Haus.", "Er sagt: „Nein“.", "Nichts."]
    our_scores = {result.metric: result.score for result in score(hypotheses, references, ["all"])}
    library = sacrebleu
    assert our_scores["bleu"] == pytest.approx(library.corpus_bleu(hypotheses, [references]).score)
    assert our_scores["sacrebleu-intl-lc"] == pytest.approx(
        library.corpus_bleu(hypotheses, [references], tokenize="intl", lowercase=True).score
    )
    assert our_scores["chrf"] == pytest.approx(library.corpus_chrf(hypotheses, [references]).score)
    assert our_scores["chrf++"] == pytest.approx(
        library.corpus_chrf(hypotheses, [references], word_order=2).score
    )
    assert our_scores["ter"] == pytest.approx(library.corpus_ter(hypotheses, [references]).score)


@pytest.mark.parametrize(
    ("hypothesis", "reference", "lower", "higher"),
    [
        # -lc: A to Z only.
        (
            "die Äpfel sind ROT .",
            "Die äpfel sind rot .",
            "multi-bleu-lc",
            "multi30k",
        ),
        ("die apfel sind ROT .", "Die Apfel sind rot .", "multi-bleu", "multi-bleu-lc"),
        (
            'Er sagte "Ja" zu ihr .',
            "Er sagte „Ja“ zu ihr .",
            "get-ende-bleu",
            "get-ende-bleu-quotes",
        ),
        # Moses' replacement does not know „, so the same text twice is below 100 until both sides
        # are replaced.
        (
            "Er sagte „Ja“ zu ihr .",
            "Er sagte „Ja“ zu ihr .",
            "get-ende-bleu-quotes",
            "get-ende-bleu-all-quotes",
        ),
        ("Er sagte ” Ja ” zu ihr .", 'Er sagte " Ja " zu ihr .', "compound-split", "get-ende-bleu"),
    ],
)
def test_each_step_of_preparation(hypothesis: str, reference: str, lower: str, higher: str) -> None:
    assert only(lower, [hypothesis], [reference]) < only(higher, [hypothesis], [reference]) == 100


def test_names_of_metrics() -> None:
    def found(names: list[str], language: str = "de") -> list[str]:
        return [measure.metric for measure in measures_of(names, language)]

    assert found(["ter", "paper", "get-ende-bleu-quotes", "chrf"]) == [
        "ter",
        "get-ende-bleu-quotes",
        "chrf",
    ]
    assert found(["paper"], "fr") == ["multi-bleu"]
    assert found(["sacreBLEU-13a", "BLEU", "chrF"]) == ["bleu", "chrf"]
    assert set(found(["all"])) == set(MEASURES)


@pytest.mark.parametrize(
    "id", ["multi-bleu", "bleu-lc", "get-ende-bleu-quotes", "multi30k", "multi-bleu-lc"]
)
def test_signatures_say_what_was_done(id: str) -> None:
    (result,) = score(["a b c d"], ["a b c d"], [id])
    parts = dict(part.split(":", 1) for part in result.signature.split("|"))
    assert parts["nrefs"] == "1"
    assert parts["version"] == sacrebleu.__version__
    assert parts["tok"] == ("13a" if id == "bleu-lc" else "moses-de")
    assert parts["smooth"] == ("exp" if id == "bleu-lc" else "none")
    assert parts["case"] == {"multi-bleu-lc": "lc-ascii", "multi30k": "lc", "bleu-lc": "lc"}.get(
        id, "mixed"
    )
    assert (parts.get("ref"), parts.get("compounds")) == (
        ("ascii-quotes", "split") if id == "get-ende-bleu-quotes" else (None, None)
    )


def test_no_two_measures_share_name_or_signature() -> None:
    results = score(["a b c d e"], ["a b c d f"], ["all"])
    assert (
        len({score.name for score in results})
        == len({score.signature for score in results})
        == len(MEASURES)
    )


def test_the_decomposition_changes_one_thing_a_row() -> None:
    hypotheses = [
        "Er sagte ”Ja” zum U-Bahn-Plan von DR. Meier.",
        "Das kostet 5,30 Euro mehr als 2016.",
    ]
    references = [
        "Er sagte „Ja“ zum U-Bahn-Plan von Dr. Meier.",
        "Es kostet 5,30 Euro mehr als 2016.",
    ]
    rows = score(hypotheses, references, ["decomposition"])
    cased = [row for row in rows if not row.metric.endswith("-lc")]
    assert [row.metric for row in cased] == list(CHAIN)
    for before, after in itertools.pairwise(set(row.signature.split("|")) for row in cased):
        added = {part.split(":")[0] for part in after - before} - {"moses", "nmt"}
        assert len(added) == 1, added


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [([], []), (["a"], []), (["a"], ["a", "b"]), (["a"], [["a"], ["a", "b"]])],
)
def test_lists_that_do_not_fit_are_refused(hypotheses: list[str], references: list[str]) -> None:
    with pytest.raises(DataError):
        score(hypotheses, references, ["bleu"])


def test_identical_text_is_perfect() -> None:
    text = ["Das U-Bahn-Netz, z.B. in Berlin, wächst."]
    scores = {result.metric: result.score for result in score(text, text, ["all"])}
    assert scores == dict.fromkeys(MEASURES, 100) | {"ter": 0}


def test_chinese() -> None:
    """As sacreBLEU counts it, where words between spaces are hardly ever equal."""
    hypotheses = ["今天天气很好我们到公园散步。", "他昨天买了一本书。", "火车在早上八点出发。"]
    references = ["今天天气很好我们去公园散步。", "他昨天买了一本新书。", "火车在早上八点离开。"]
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize="zh").score
    assert expected > 60
    assert only("sacrebleu-zh", hypotheses, references) == pytest.approx(expected, abs=1e-9)
    assert only("bleu", hypotheses, references) == 0
