"""The test text of prepared data, or of the data that a run was trained on."""

from __future__ import annotations

from pathlib import Path

from nmt_cli.checkpoint import FOLDER_OF_RUN
from nmt_cli.data.corpus import MANIFEST, Corpus, read_manifest
from nmt_cli.errors import DataError, UsageError
from nmt_cli.files.text import weighted


def file_of_test_text(place: Path, side: str, flag: str, instead: str) -> Path:
    """Return the file of one side of the test text.

    Args:
        place: prepared data, a run, or a checkpoint in a run.
        flag: for messages, and the flag that takes a file `instead`.

    Raises:
        UsageError: it is none of them, the data have moved or changed, or they have no test text.
    """
    try:
        data = [place] if (place / MANIFEST).exists() else _data_of_run(place)
        for path in data:
            if "test" in read_manifest(path)["splits"]:
                Corpus.open(path, "test").verify()
                return path / f"test.{side}.txt"
    except (DataError, UsageError) as error:
        raise UsageError(f"{flag}: {error}. Or give {instead} DATA/test.{side}.txt") from error
    names = " ".join(map(str, data))
    raise UsageError(
        f"{flag}: {names} has no test text; run nmt prepare with --test PREFIX or --hold-out N"
    )


def reference_file(name: str) -> str:
    """Return the file of reference translations that --ref names."""
    if Path(name).is_dir():
        return str(file_of_test_text(Path(name), "target", "--ref", "--ref"))
    return name


def _data_of_run(place: Path) -> list[Path]:
    from nmt_cli.training.run_directory import read_config

    run = place
    for folder in (place, *place.absolute().parents[:2]):
        if (folder / FOLDER_OF_RUN).is_dir():
            run = folder
            break
    data = read_config(run)["data"]
    return [Path(weighted(text)[0]) for text in data.get("paths", [data["path"]])]
