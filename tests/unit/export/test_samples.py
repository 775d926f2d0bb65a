from __future__ import annotations

import json
import shutil
from pathlib import Path

from nmt_cli.checkpoint import load_task
from nmt_cli.export.samples import LINES, sample_lines
from nmt_cli.interfaces import UNK


def test_lines_of_the_validation_text_of_the_checkpoints_run(
    tiny_data: Path, tiny_checkpoint: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    config = {"data": {"path": str(tiny_data), "fingerprint": ""}, "imports": []}
    valid = (tiny_data / "valid.source.txt").read_text().splitlines()
    task = load_task(tiny_checkpoint / "task")
    for place in ("averaged", "checkpoints/step-00000010"):
        folder = Path(shutil.copytree(tiny_checkpoint, run / place))
        assert "vocabulary" in sample_lines(folder, task)[1]
        (run / "config.json").write_text(json.dumps(config))
        lines, origin = sample_lines(folder, task)
        assert "validation" in origin
        assert set(lines) <= set(valid)
        assert len(valid) / 2 < len(lines) * 2 <= 2 * LINES
        (run / "config.json").unlink()


def test_lines_of_the_vocabulary(tiny_checkpoint: Path) -> None:
    task = load_task(tiny_checkpoint / "task")
    lines, origin = sample_lines(tiny_checkpoint, task)
    assert "vocabulary" in origin
    assert len(lines) == len(set(lines)) == LINES
    ids = [task.encode_source(line) for line in lines]
    assert set().union(*ids) >= set(range(5, task.source_vocabulary_size))
    assert not any(UNK in row for row in ids)
    assert lines == sample_lines(tiny_checkpoint, task)[0]
