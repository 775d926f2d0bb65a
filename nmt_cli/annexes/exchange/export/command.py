"""`nmt export`: a checkpoint in the form of another program. formats.py says what a format is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt_cli import registry
from nmt_cli.annexes.exchange.export.formats import FORMATS, QUANTIZATIONS
from nmt_cli.flags import Command, import_option
from nmt_cli.registry import REQUIRED, argument, option
from nmt_cli.streams import say


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Write a checkpoint for another program, and check it there."""

    checkpoint: Path = argument("CHECKPOINT", "A checkpoint, or a run (its newest checkpoint).")
    to: str = option(
        REQUIRED,
        "The program: CTranslate2, or Hugging Face Transformers.",
        choices=sorted(FORMATS.names),
    )
    out: Path = option(REQUIRED, "The directory to write.", metavar="DIR")
    quantization: str = option(
        "float32", "Type of the weights in a CTranslate2 model.", choices=QUANTIZATIONS
    )
    overwrite: bool = option(False, "Replace an earlier export.")
    imports: tuple[str, ...] = import_option()


def export(options: ExportOptions) -> None:
    """Write the checkpoint as `options.out`.

    Raises: as `write_export`, and
        UsageError: the checkpoint is an export.
    """
    from nmt_cli.annexes.exchange.export.writing import write_export
    from nmt_cli.checkpoint import locate

    registry.discover(options.imports)
    folder = locate(options.checkpoint, say)
    write_export(
        folder,
        options.to,
        options.out,
        quantization=options.quantization,
        overwrite=options.overwrite,
        say=say,
    )
    say(f"exported {folder} to {options.out}")


command = Command(
    ExportOptions,
    export,
    examples=[
        "nmt export run/averaged --to ctranslate2 --out model-ctranslate2",
        "nmt export run --to ctranslate2 --quantization int8 --out model-int8",
        "nmt export run/averaged --to huggingface --out model-huggingface",
    ],
)
