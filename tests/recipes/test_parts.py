"""Text in parts, as docs/recipes.md prepares it: the parts are trained on as one corpus."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numbers_below_1000 import name

Bash = Callable[..., Any]
Run = Callable[..., tuple[int, str, str]]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
LANGUAGES = ["--source-lang", "en", "--target-lang", "de"]


def test_parts_are_prepared_once_and_trained_on_together(
    bash: Bash, nmt: Run, tmp_path: Path
) -> None:
    for number in range(3):
        for language in ("en", "de"):
            lines = (f"{name(n, language)}\n" for n in range(number, 300, 3))
            (tmp_path / f"part-0{number}.{language}").write_text("".join(lines), encoding="utf-8")
    first = tmp_path / "data-00"
    assert (
        nmt(
            "prepare",
            *LANGUAGES,
            "--train",
            tmp_path / "part-00",
            "--vocab-size",
            60,
            "--out",
            first,
        )[0]
        == 0
    )
    loop = re.search(
        r"^for part in .*?^done$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert loop is not None
    command = loop[0].replace("$(seq -w 1 49)", "01 02")
    bash("-c", command, cwd=tmp_path)
    bash("-c", f"nmt() {{ false; }}\n{command}", cwd=tmp_path)  # nothing is missing
    code, out, err = nmt(
        "train", *sorted(tmp_path.glob("data-*")), "--dry-run", "--json", "--num-layers", 1
    )
    assert code == 0, err
    assert json.loads(out)["sentences"] == 300
