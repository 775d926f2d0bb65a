"""Components in files of the user: the example of docs/adding-a-component.md, and a part of the model."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

Nmt = Callable[..., subprocess.CompletedProcess[str]]

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-component.md"
SMALL = "--num-layers 1 --d-model 16 --d-ff 16 --num-heads 1 --batch-tokens 512 --max-steps 2 --save-every 1".split()
KERNEL = """
from dataclasses import dataclass
from nmt_cli.registry import build, find, option, register

@dataclass(frozen=True)
class SharpConfig:
    sharpness: float = option(1.0, "Not used.")

@register("attention", "sharp", SharpConfig)
def sharp(config, **runtime):
    return build(find("attention", "full").config(), **runtime)
"""


def test_own_components_train_average_and_translate(nmt: Nmt, data: Path, tmp_path: Path) -> None:
    example = re.search(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    (tmp_path / "momentum.py").write_text(example[1], encoding="utf-8")
    (tmp_path / "sharp_kernel.py").write_text(KERNEL, encoding="utf-8")
    run, place = tmp_path / "run", {"PYTHONPATH": str(tmp_path)}

    imports = ("--import", "momentum", "--import=sharp_kernel")
    chosen = ("--optimizer", "momentum", "--momentum", "0.95", "--attention", "sharp", "--attention.sharpness", "2")
    nmt("train", data, *SMALL, *imports, *chosen, "--out", run, **place)
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))
    assert config["optimizer"] == {"name": "momentum", "momentum": 0.95, "nesterov": False}
    assert config["attention"] == {"name": "sharp", "sharpness": 2.0}

    # The optimizer is needed to train only.
    nmt("average", run, "--last", 2, "--out", run / "averaged", "--import", "sharp_kernel", **place)
    translated = nmt("translate", run / "averaged", "--import", "sharp_kernel", stdin="forty-two\n", **place)
    assert translated.stdout.count("\n") == 1
    refused = nmt("translate", run / "averaged", stdin="forty-two\n", code=1)
    assert "--import sharp_kernel" in refused.stderr
