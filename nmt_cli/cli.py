"""The command line: every command's flags on one page. Bodies are imported when their command runs."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from nmt_cli import __version__
from nmt_cli.errors import NmtError, UsageError
from nmt_cli.streams import sound_streams

HELP = '"Attention Is All You Need", complete: prepare text, train, average, translate, score.'
IMPORT = "--import"


def main(arguments: Sequence[str] | None = None) -> None:
    """The `nmt` command. Exit codes: 0; 1 for data and files; 2 for wrong usage; 128 + n for signal n."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a broken connection is told by us, in words
    given = list(sys.argv[1:] if arguments is None else arguments)
    with sound_streams():
        with_exit_codes(lambda: application(given)(given, prog_name="nmt"))


def with_exit_codes(run: Callable[[], Any]) -> None:
    """Runs, and turns every error that a user can meet into one message on stderr and the right exit code."""
    try:
        run()
        sys.stdout.flush()
    except NmtError as error:
        leave(str(error), error.exit_code)
    except KeyboardInterrupt:
        leave("interrupted", 130)
    except BrokenPipeError:
        silence_output()
        sys.exit(141)
    except OSError as error:
        if error.errno == errno.EBADF:
            silence_output()
            leave("standard output is closed: there is nowhere for the results", 1)
        place = f"{error.filename}: " if error.filename else ""
        advice = "; make room on the disk and run the command again" if error.errno == errno.ENOSPC else ""
        leave(f"{place}{error.strerror or error}{advice}", 1)
    except MemoryError:
        leave("out of memory; use smaller batches", 1)


def silence_output() -> None:
    """What is still to be written to standard output goes nowhere: so the last flush is quiet, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def leave(message: str, code: int) -> None:
    """Ends the process with a message for the user."""
    print(f"nmt: {message}", file=sys.stderr)
    sys.exit(code)


def application(arguments: Sequence[str]) -> typer.Typer:
    """The commands. The flags of components are made for the command that is called: `nmt --help` stays light."""
    called = next((argument for argument in arguments if not argument.startswith("-")), "")
    app = typer.Typer(
        help=HELP, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )
    app.callback()(common)
    commands: dict[str, Callable[..., None]] = {
        "prepare": prepare,
        "train": train,
        "average": average,
        "translate": translate,
        "score": score,
    }
    if called == "prepare":
        commands["prepare"] = with_task_fields(prepare, imports_of(arguments))
    if called == "train":
        commands["train"] = with_training_fields(train, imports_of(arguments))
    for name, command in commands.items():
        app.command(name, no_args_is_help=True)(guarded(command))
    return app


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with our exit codes, before the command-line library can meet its errors."""
    import functools

    @functools.wraps(command)
    def run(*args: Any, **values: Any) -> None:
        with_exit_codes(lambda: command(*args, **values))

    return run


def imports_of(arguments: Sequence[str]) -> list[str]:
    """The modules of `--import MODULE`, which must be known before the flags that they bring can be read."""
    pairs = zip(arguments, [*arguments[1:], ""], strict=True)
    return [after for argument, after in pairs if argument == IMPORT] + [
        argument.removeprefix(f"{IMPORT}=") for argument in arguments if argument.startswith(f"{IMPORT}=")
    ]


def with_training_fields(command: Callable[..., None], imports: Sequence[str]) -> Callable[..., None]:
    """`command` with the flags of the training loop and of every registered component."""
    from nmt_cli import registry
    from nmt_cli.config import DEFAULT_COMPONENTS
    from nmt_cli.flags import Panel, with_fields
    from nmt_cli.training.settings import TrainingConfig

    registry.discover(imports)
    panels = [Panel("training", TrainingConfig)]
    for kind in DEFAULT_COMPONENTS:
        panels += [Panel(f"{kind} {component.name}", component.config) for component in registry.components(kind)]
    return with_fields(command, panels, {kind: registry.names(kind) for kind in DEFAULT_COMPONENTS})


def with_task_fields(command: Callable[..., None], imports: Sequence[str]) -> Callable[..., None]:
    """`command` with the flags of every registered task; models are not looked for, as they need torch."""
    from nmt_cli import registry
    from nmt_cli.flags import Panel, with_fields

    registry.discover(imports, homes=("tasks",))
    panels = [Panel(f"task {component.name}", component.config) for component in registry.components("task")]
    return with_fields(command, panels, {"task": registry.names("task")})


def print_version(wanted: bool) -> None:
    """Prints the version and ends, where it is wanted."""
    if wanted:
        print(f"nmt {__version__}")
        raise typer.Exit


def common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """The flags of `nmt` itself."""


def prepare(
    train: Annotated[
        list[str], typer.Option("--train", metavar="PREFIX", help="Training text: data/train is data/train.en[.gz].")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DATA", help="The folder to make.")],
    valid: Annotated[
        str | None, typer.Option("--valid", metavar="PREFIX", help="Validation text; every line is kept.")
    ] = None,
    test: Annotated[str | None, typer.Option("--test", metavar="PREFIX", help="Test text; every line is kept.")] = None,
    subwords_from: Annotated[
        Path | None,
        typer.Option("--subwords-from", metavar="DATA | CHECKPOINT", help="Use its vocabulary; learn none."),
    ] = None,
    keep_duplicates: Annotated[
        bool, typer.Option("--keep-duplicates", help="Keep training pairs that occurred before.")
    ] = False,
    workers: Annotated[
        int | None, typer.Option(help="Processes; changes no result. \\[default: the cores, at most 8]", min=1)
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace prepared data that is there.")] = False,
    import_: Annotated[
        list[str] | None, typer.Option(IMPORT, metavar="MODULE", help="A Python module that registers tasks.")
    ] = None,
    flags: Annotated[Any, "the fields of tasks that were given"] = None,
) -> None:
    """Raw text to a memory-mapped corpus of subword ids."""
    from nmt_cli.commands import prepare as body

    workers = workers or body.default_workers()
    settings = body.PrepareSettings(
        out, tuple(train), valid, test, subwords_from, keep_duplicates, workers, overwrite, chosen=frozenset(flags)
    )
    body.prepare(body.task_config(flags), settings)


def train(
    data: Annotated[Path | None, typer.Argument(metavar="DATA", help="What `nmt prepare` wrote.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="Folder of the run: new, or one to resume.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="NAME", help="A named model; --list-presets shows them.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings from a TOML or JSON file.")
    ] = None,
    list_presets: Annotated[
        bool, typer.Option("--list-presets", help="Show the presets with what differs from the base model.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the resolved configuration, the parameters and the plan.")
    ] = False,
    vocab_size: Annotated[
        int | None, typer.Option("--vocab-size", help="With --dry-run: count without data.", min=5)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run or --list-presets: one JSON object.")] = False,
    verify_resume: Annotated[
        bool,
        typer.Option("--verify-resume", help="Train a few steps, kill, resume, compare bit for bit; keep nothing."),
    ] = False,
    import_: Annotated[
        list[str] | None, typer.Option(IMPORT, metavar="MODULE", help="A Python module that registers components.")
    ] = None,
    flags: Annotated[Any, "the fields of components that were given"] = None,
) -> None:
    """Train a model, or resume a run: the same command again goes on where it stopped."""
    from nmt_cli.commands import train as body

    if vocab_size is not None and not dry_run:
        raise UsageError("--vocab-size is for --dry-run; the vocabulary of a training is that of DATA")
    if as_json and not (dry_run or list_presets):
        raise UsageError("--json is for --dry-run and --list-presets; the figures of a training are in metrics.jsonl")
    if list_presets:
        body.show_presets(as_json)
    elif dry_run:
        body.show_dry_run(body.dry_run(data, flags, preset, config, vocab_size), as_json)
    elif data is not None and verify_resume:
        from nmt_cli.commands import verify_resume as verification

        print(verification.verify_resume(data, out, flags, preset, config, import_ or []))
    elif data is None or out is None:
        raise UsageError(f"{'DATA' if data is None else '--out RUN'} is missing: nmt train DATA --out RUN")
    else:
        body.train(data, out, flags, preset, config, import_ or [])


def average(
    paths: Annotated[
        list[Path], typer.Argument(metavar="RUN | CHECKPOINT...", help="A run with --last, or checkpoints.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="CHECKPOINT", help="Where the averaged checkpoint goes.")],
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", help="Average the run's last N checkpoints.", min=1)
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an averaged checkpoint that is there.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Also average checkpoints of different runs.")] = False,
) -> None:
    """Average checkpoints (section 6.1)."""
    from nmt_cli.commands import average as body

    body.average(paths, last, out, overwrite, force)


def translate(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(metavar="CHECKPOINT...", help="A checkpoint, or a run (its newest one); several: an ensemble."),
    ],
    input: Annotated[
        Path | None, typer.Option("--input", "-i", metavar="FILE", help="Read this file, plain or .gz, not stdin.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write this file, not stdout.")
    ] = None,
    interactive: Annotated[bool, typer.Option("--interactive", help="Type lines, read their translations.")] = False,
    beam: Annotated[
        int | None,
        typer.Option(help="Hypotheses that are followed at once; 1 is greedy. \\[default: 4; parsing 21]", min=1),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="The same as --beam 1.")] = False,
    alpha: Annotated[
        float | None, typer.Option(help="Exponent of the length penalty. \\[default: 0.6; parsing 0.3]", min=0.0)
    ] = None,
    max_length_offset: Annotated[
        int | None,
        typer.Option(help="Output limit: source tokens + this, instead of the task's own.", min=0),
    ] = None,
    min_length: Annotated[int, typer.Option(help="Output tokens, at least.", min=0)] = 0,
    constrained: Annotated[bool, typer.Option("--constrained", help="Well-formed outputs only (parsing).")] = False,
    nbest: Annotated[
        int, typer.Option("--nbest", metavar="N", help="N outputs a line: line number, score, text, by tabs.", min=1)
    ] = 1,
    scores: Annotated[bool, typer.Option("--scores", help="Write each output's score before it, and a tab.")] = False,
    attention: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Also write a page to look at every head's attention with."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto | cpu | cuda | cuda:N")] = "auto",
    batch_tokens: Annotated[int, typer.Option(help="Source tokens of a batch, padding counted.", min=1)] = 4096,
    read_ahead: Annotated[int, typer.Option(help="Lines that are read, and sorted by length, at once.", min=1)] = 1024,
    max_source_length: Annotated[
        int, typer.Option(help="Tokens of a line that are translated; a warning names longer ones.", min=1)
    ] = 1024,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary on stderr.")] = False,
) -> None:
    """Translate lines from stdin to stdout, one line out for each line in."""
    from nmt_cli.commands import translate as body

    options = {
        "beam": 1 if greedy else beam,
        "alpha": alpha,
        "nbest": nbest,
        "min_length": min_length,
        "max_length_offset": max_length_offset,
        "batch_tokens": batch_tokens,
        "read_ahead": read_ahead,
        "max_source_length": max_source_length,
        "constrained": constrained,
    }
    chosen = {name: value for name, value in options.items() if value is not None}
    settings = body.TranslateSettings(
        tuple(checkpoints), input, output, device, scores, interactive, quiet, chosen, attention
    )
    body.translate(settings)


def score(
    hypotheses: Annotated[
        list[str],
        typer.Argument(metavar="HYPOTHESES...", help="Translations, plain or .gz; - is stdin. Several: systems."),
    ],
    ref: Annotated[
        list[str],
        typer.Option("--ref", metavar="REFERENCE", help="What they are compared with; again for another one."),
    ],
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="paper, sacrebleu-13a, chrf, ... (again for another one), or bleu, or all; or brackets, for trees.",
        ),
    ] = None,
    target_lang: Annotated[
        str | None,
        typer.Option(metavar="LANG", help="For the Moses tokeniser. \\[default: REFERENCE's ending, or else de]"),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option("--test", help="paired-bootstrap | approximate-randomization: systems against the first."),
    ] = None,
    test_samples: Annotated[
        int | None, typer.Option(help="Resamples or trials. \\[default: 1000 or 10000]", min=1)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    allow_subword_marks: Annotated[
        bool, typer.Option("--allow-subword-marks", help="Score text that holds '@@' or U+2581 all the same.")
    ] = False,
    evalb_parameters: Annotated[
        Path | None, typer.Option(metavar="FILE", help="brackets: EVALB's settings. \\[default: those of COLLINS.prm]")
    ] = None,
    per_sentence: Annotated[bool, typer.Option("--per-sentence", help="brackets: EVALB's table of sentences.")] = False,
    gold_tags: Annotated[
        bool, typer.Option("--gold-tags", help="brackets: the reference's tags over the words.")
    ] = False,
) -> None:
    """Score hypotheses against references: every BLEU by its full name, chrF and TER; trees as EVALB does."""
    if "brackets" in (metric or ()) or evalb_parameters or per_sentence or gold_tags:
        from nmt_cli.commands import score_brackets

        of_text: dict[str, object] = {"--target-lang": target_lang, "--test": test, "--test-samples": test_samples}
        of_text["--allow-subword-marks"] = allow_subword_marks
        request = score_brackets.request(
            hypotheses, ref, metric or (), evalb_parameters, per_sentence, gold_tags, as_json, of_text
        )
        score_brackets.run(request)
        return
    from nmt_cli.commands import score as body

    body.run(
        body.Request(hypotheses, ref, metric or (), target_lang, test, test_samples or 0, as_json, allow_subword_marks)
    )


if __name__ == "__main__":
    main()
