"""The options of `nmt import`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt_cli.registry import REQUIRED, argument, option


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Make a checkpoint of a model of fairseq, OpenNMT-py or Marian.

    What PATH is decides how it is read. Nothing in it is run.
    """

    path: Path = argument(
        "PATH",
        "A checkpoint of fairseq, beside its dict.*.txt, or of OpenNMT-py, Marian's model.npz, or "
        "a folder with a MarianMTModel (OPUS-MT).",
    )
    out: Path = option(REQUIRED, "The checkpoint to write.", metavar="CHECKPOINT")
    source_lang: str | None = option(
        None,
        "Source language: the ending of your files. [default: what PATH names]",
        metavar="LANG",
    )
    target_lang: str | None = option(None, "Target language.", metavar="LANG")
    subwords: Path | None = option(
        None,
        "A SentencePiece model or subword-nmt's codes. [default: input is split already, outputs "
        "stay split]",
    )
    target_subwords: Path | None = option(None, "Of the target. [default: --subwords]")
    moses: bool = option(
        False, "The model was trained on text tokenised as Moses does. Outputs are detokenised."
    )
    moses_escape: bool = option(False, "With --moses: on text with escaped characters (&apos;).")
    lowercase: bool = option(False, "The model was trained on lower-cased text.")
    overwrite: bool = option(False, "Replace an imported or averaged checkpoint.")
