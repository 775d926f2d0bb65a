"""`nmt recipes`: the recipes that come with the package, listed or copied."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nmt_cli.errors import UsageError
from nmt_cli.files import durable
from nmt_cli.files.staging import staged
from nmt_cli.flags import Command
from nmt_cli.registry import option
from nmt_cli.streams import say

# The file of the functions that recipes share. The recipes are in its directory.
SHARED = "common.sh"


@dataclass(frozen=True, kw_only=True)
class RecipesOptions:
    """List the recipes, or copy them to a directory.

    A recipe is a shell script that goes from raw text to a score.
    """

    out: Path | None = option(None, "Copy the recipes to this new directory.", metavar="DIR")


def recipes(options: RecipesOptions) -> None:
    """Print the recipes with their first line, or copy them.

    Raises:
        UsageError: the directory is in use, or this installation has no recipes.
    """
    folder = recipes_folder()
    if options.out is None:
        about = {str(path.relative_to(folder)): line for path, line in described(folder)}
        width = max(len(name) for name in about)
        for name, line in about.items():
            print(f"{name:<{width}}  {line}")
        return
    with staged(options.out, overwrite=False, allowed=(), marker=SHARED) as aside:
        files = []
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                files.append(path)
        durable.copy_files(files, folder, aside)
        with suppress(OSError):  # some file systems have no permissions
            for script in aside.rglob("*.sh"):
                script.chmod(script.stat().st_mode | 0o111)
    say(f"copied the recipes to {options.out}; begin with {options.out / 'quickstart.sh'}")


def recipes_folder() -> Path:
    """Return the directory of the recipes: the checkout's, or the installed one."""
    checkout = Path(__file__).parents[3] / "recipes"
    if (checkout / SHARED).is_file():
        return checkout
    for file in importlib.metadata.files("nmt-cli") or ():
        if file.match(f"nmt/recipes/{SHARED}"):
            return Path(str(file.locate())).resolve().parent
    raise UsageError("this installation has no recipes: install the wheel, or use a checkout")


def described(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the recipes, and the first sentence of the comment on their second line."""
    for path in sorted(folder.rglob("*.sh"), key=lambda path: (path.parent, path.name)):
        first_line, second_line, *_ = path.read_text(encoding="utf-8").splitlines()
        if first_line.startswith("#!") and path.name != "train.sh":
            sentence, _, _ = second_line.removeprefix("# ").partition(". ")
            yield path, sentence.rstrip(".:")


command = Command(
    RecipesOptions,
    recipes,
    needs_arguments=False,
    examples=["nmt recipes", "nmt recipes --out recipes && recipes/quickstart.sh"],
)
