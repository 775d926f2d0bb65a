"""`nmt import`: a model of another program as a checkpoint. (`import` is a Python keyword.)"""

from __future__ import annotations

from nmt_cli.annexes.exchange.importing.options import ImportOptions
from nmt_cli.errors import command_line
from nmt_cli.flags import Command
from nmt_cli.streams import say


def import_model(options: ImportOptions) -> None:
    """Write the model of `options.path` as the checkpoint `options.out`.

    Raises:
        UsageError: `out` cannot be written or replaced, a language is not known, or an option does
            not fit.
        CheckpointError: no importer takes `path`, a file is missing or damaged, or our Transformer
            cannot express the model.
    """
    from nmt_cli import checkpoint, registry
    from nmt_cli.annexes.exchange.importing.importers import read_model
    from nmt_cli.weights import write_checkpoint

    registry.discover()
    with checkpoint.new(options.out, options.overwrite) as aside:
        imported = read_model(options.path, options)
        write_checkpoint(aside, imported.contents, imported.weights, imported.task)
    source, target = imported.task.languages
    parameters = sum(weight.numel() for weight in imported.weights.values())
    entries = imported.contents.target_vocabulary_size
    say(
        f"imported {options.path} into {options.out}: {source} to {target}, {parameters:,} "
        f"parameters, {entries:,} entries in the vocabulary\n"
        f"next: {command_line('translate', options.out)}"
    )


command = Command(
    ImportOptions,
    import_model,
    examples=[
        "nmt import opus-mt-en-de --out en-de",
        "nmt import checkpoint_best.pt --subwords codes --moses --out en-de",
        "nmt import model.pt --source-lang en --target-lang de --out en-de",
        "nmt import model.npz --source-lang en --target-lang de --out en-de",
    ],
)
