"""`nmt import`: a MarianMTModel folder of Hugging Face Transformers as a checkpoint. (`import` is a Python keyword.)"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt_cli.flags import Command
from nmt_cli.registry import REQUIRED, argument, option
from nmt_cli.streams import say


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """Make a checkpoint of an OPUS-MT (Marian) model.

    It is a folder of Hugging Face Transformers with a MarianMTModel.
    """

    folder: Path = argument("FOLDER", "config.json, weights, vocab.json, source.spm and target.spm.")
    out: Path = option(REQUIRED, "The checkpoint to write.", metavar="CHECKPOINT")
    source_lang: str | None = option(
        None, "Source language: the ending of your files. [default: from tokenizer_config.json]", metavar="LANG"
    )
    target_lang: str | None = option(None, "Target language.", metavar="LANG")
    overwrite: bool = option(False, "Replace an imported or averaged checkpoint.")


def import_marian(options: ImportOptions) -> None:
    """Write the model of `options.folder` as the checkpoint `options.out`.

    Raises:
        UsageError: `out` cannot be written or replaced, or a language is not known.
        CheckpointError: a file is missing or damaged, or our Transformer cannot express the model.
    """
    from nmt_cli import checkpoint, registry
    from nmt_cli.commands.average import new_checkpoint
    from nmt_cli.marian.reading import read

    registry.discover()
    with new_checkpoint(options.out, options.overwrite) as aside:
        found = read(options.folder, (options.source_lang, options.target_lang))
        checkpoint.write(aside, found.contents, found.weights, found.task)
    source, target = found.task.languages
    parameters = sum(weight.numel() for weight in found.weights.values())
    say(
        f"imported {options.folder} into {options.out}: {source} to {target}, {parameters:,} parameters, "
        f"{found.contents.target_vocabulary_size:,} entries in the vocabulary\n"
        f"next: nmt translate {options.out}"
    )


command = Command(
    ImportOptions,
    import_marian,
    examples=["nmt import opus-mt-en-de --out en-de", "nmt import opus-mt-de-en --target-lang en --out de-en"],
)
