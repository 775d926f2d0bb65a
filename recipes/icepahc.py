"""Trees of the Icelandic Parsed Historical Corpus, for recipes/icepahc_parsing.sh.

icepahc.py treebank CORPUS OUT [same-texts]
    write OUT, complete or absent: train.ptb, dev.ptb and test.ptb
icepahc.py compare CORPUS
    in the recipe's output directory: a table of its parser beside that of the corpus's authors,
    on the same sentences

same-texts: of the training texts, only those that the authors' parser was trained on
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from report import print_table, read_lines, user_errors, write_lines

from nmt_cli.annexes.parsing.evalb import score_brackets
from nmt_cli.annexes.parsing.evalb_parameters import COLLINS
from nmt_cli.annexes.parsing.trees import (
    Close,
    Event,
    Leaf,
    Open,
    Tree,
    clean,
    line_tree,
    parse_trees,
    retagged,
    tree_line,
)
from nmt_cli.errors import UsageError
from nmt_cli.files.text import read_lines as read_text

# The split of UD_Icelandic-IcePaHC, by text. All other texts are for training.
HELD_OUT = {
    "dev": (
        "1250.thetubrot 1350.bandamennM 1475.aevintyri 1525.georgius 1630.gerhard 1720.vidalin "
        "1883.voggur 1888.grimur 1902.fossar 2008.ofsi"
    ).split(),
    "test": (
        "1150.firstgrammar 1210.jartein 1350.marta 1400.gunnar2 1450.bandamenn 1540.ntacts "
        "1628.olafuregils 1745.klim 1850.piltur 1920.arin"
    ).split(),
}
# The training texts that the authors' parser was trained on. It was on six of the dev set, too.
AUTHORS_TEXTS = (
    "1150.homiliubok 1210.thorlakur 1270.gragas 1300.alexander 1325.arni 1350.finnbogi 1400.gunnar "
    "1400.viglundur 1450.ectorssaga 1450.vilhjalmur 1480.jarlmann 1540.ntjohn 1611.okur "
    "1659.pislarsaga 1675.armann 1675.modars 1791.jonsteingrims 1835.jonasedli 1859.hugvekjur "
    "1882.torfhildur 1908.ofurefli 1985.margsaga 2008.mamma"
).split()

# The outputs of their parser, in a clone of the corpus, and the labels that they do not tell apart.
PARSED = "parsald/comparison/IceGrammarParsedFiles"
MERGED = {
    "NX": "NP",
    "NPX": "NP",
    "ADJX": "ADJP",
    "ADVX": "ADVP",
    "NEGP": "ADVP",
    "LATIN": "FOREIGN",
}

NOT_TEXT = frozenset(("ID", "CODE"))  # numbers of trees, pages and comments
NAMED_CHARACTERS = {
    "apostrophe": "'",
    "at": "@",
    "closeparen": "-RRB-",
    "dash": "-",
    "ellipsis": "...",
    "numbersign": "#",
    "openparen": "-LRB-",
    "percent": "%",
    "slash": "/",
}


def plain_word(text: str) -> str:
    """Return the word of a leaf `word-lemma`, with named characters such as `<dash/>` as such."""
    word = "-" if text == "---" else text.rsplit("-", 1)[0] or text
    word = re.sub(r"<(\w+)/?>", lambda match: NAMED_CHARACTERS.get(match[1], match[0]), word)
    return word.strip("{}") or word


def penn_tree(tree: Tree) -> Tree | None:
    """Return a tree of the corpus as a cleaned tree of words.

    Comments and traces go. Parts of a word, `tungur$` and `$nar`, become the word with the tag of
    the first.

    Returns:
        None if there is no constituent with a word.
    """
    events: list[Event] = []
    skipped = 0  # constituents that are open and no text
    last = -1  # the place of the last word
    for event in tree.events:
        match event:
            case Open(label) if skipped or label in NOT_TEXT:
                skipped += 1
            case Close() if skipped:
                skipped -= 1
            case Leaf(tag, text) if skipped or tag in NOT_TEXT or text[0] == "*" or text == "0":
                pass
            case Leaf(tag, text):
                word = plain_word(text)
                before = events[last] if last >= 0 else None
                if isinstance(before, Leaf) and before.word.endswith("$") and word[0] == "$":
                    events[last] = Leaf(before.tag, before.word[:-1] + word[1:])
                else:
                    last = len(events)
                    events.append(Leaf(tag, word))
            case _:
                events.append(event)
    cleaned = clean(Tree(tuple(events))) if events else None
    if cleaned is None or isinstance(cleaned.events[1], Leaf):
        return None
    return cleaned


def texts(folder: Path, ending: str) -> dict[str, Path]:
    """Return the files of the directory by year and name, such as 1150.firstgrammar."""
    paths = sorted(folder.glob(f"*{ending}"))
    return {".".join(path.name.split(".")[:2]): path for path in paths}


def write_treebank(corpus: Path, out: Path, same_texts: bool) -> None:
    """Write the trees of each split, one a line."""
    files = texts(corpus / "finished", ".psd")
    held_out = [*HELD_OUT["dev"], *HELD_OUT["test"]]
    missing = [name for name in [*held_out, *AUTHORS_TEXTS] if name not in files]
    if missing:
        raise UsageError(
            f"{corpus}/finished: there is no text {', '.join(missing)}; give a clone of "
            "https://github.com/antonkarl/icecorpus"
        )
    rest = [name for name in files if name not in held_out]
    out.mkdir(parents=True, exist_ok=True)
    for split, names in {"train": AUTHORS_TEXTS if same_texts else rest, **HELD_OUT}.items():
        lines = []
        for name in names:
            path = files[name]
            trees = (penn_tree(placed.tree) for placed in parse_trees(read_text(path), str(path)))
            lines += [tree_line(tree) for tree in trees if tree is not None]
        write_lines(out / f"{split}.ptb", lines)
        print(f"{split}: {len(lines):,} trees of {len(names)} texts", file=sys.stderr)


def parsed(corpus: Path, split: str) -> Iterator[Tree]:
    """Yield the trees of the authors' parser."""
    files = texts(corpus / PARSED, ".parsed")
    for name in HELD_OUT[split]:
        if name in files:
            path = files[name]
            for tree, _ in parse_trees(read_text(path), str(path)):
                cleaned = clean(tree)
                if cleaned is not None:
                    yield merged(cleaned)


def merged(tree: Tree) -> Tree:
    """Return the tree with the labels that the authors' parser tells apart, not such as NP*SBJ."""
    events: list[Event] = []
    for event in tree.events:
        if not isinstance(event, Leaf):
            label = event.label.split("*")[0]
            event = type(event)(MERGED.get(label, label))
        events.append(event)
    return Tree(tuple(events))


def f1(lines: Iterable[str], gold: Sequence[str]) -> str:
    """Return EVALB's F1 with the tags of the gold trees."""
    pairs = zip(lines, gold, strict=True)
    report = score_brackets([retagged(line, other) or line for line, other in pairs], gold, COLLINS)
    return f"{report.everything['f1']:.2f}"


def compare(corpus: Path) -> None:
    """Print the table: the sentences that have the same words in the authors' outputs."""
    rows = []
    for split in HELD_OUT:
        gold = [merged(line_tree(line)) for line in read_lines(Path(f"trees/{split}.ptb"))]
        outputs = list(parsed(corpus, split))
        words, other_words = ([tuple(tree.words) for tree in trees] for trees in (gold, outputs))
        matcher = SequenceMatcher(None, words, other_words, False)
        places = []
        for start, other, size in matcher.get_matching_blocks():
            places += [(start + number, other + number) for number in range(size)]
        same_gold = [tree_line(gold[place]) for place, _ in places]
        row = [split, f"{len(places):,} of {len(gold):,}"]
        row.append(f1([tree_line(outputs[other]) for _, other in places], same_gold))
        for stem in (split, f"{split}.constrained"):
            lines = read_lines(Path(f"{stem}.ptb"))
            ours = [lines[place] for place, _ in places]
            # An empty line is a sentence without a parse.
            row.append(
                f1([line and tree_line(merged(line_tree(line))) for line in ours], same_gold)
            )
        rows.append(row)
    print()
    print_table(["F1", "sentences", "Berkeley parser", "this run", "this run, constrained"], rows)
    print(
        "\nThe Berkeley parser was trained by the corpus's authors in 2015 on 30 texts. Their "
        "outputs are in the corpus.\nLabels that they do not tell apart are merged."
    )


def main(action: str, corpus: str, out: str = "", same_texts: str = "") -> None:
    if action == "compare":
        compare(Path(corpus))
        return
    unfinished = Path(f"{out}.part")
    write_treebank(Path(corpus), unfinished, bool(same_texts))
    unfinished.rename(out)


if __name__ == "__main__":
    with user_errors():
        main(*sys.argv[1:])
