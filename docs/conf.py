"""The documentation's site: `make docs` builds it with Sphinx, and fails on a broken link."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from docutils.nodes import Element, SkipNode
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx

from nmt_cli import __version__, registry
from nmt_cli.cli import application, command_names

project = "nmt"
author = "the authors of nmt"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "dollarmath"]
exclude_patterns = ["build"]
nb_execution_mode = "force"  # a cache would show outputs of code that has changed
# An error is a warning with its traceback, and `-W` ends with exit code 1.
nb_execution_show_tb = True
nb_execution_timeout = 600  # seconds, of a block
nb_merge_streams = True
nb_output_stderr = "remove"  # such as messages about matplotlib's fonts
html_theme = "furo"
html_title = "nmt"
html_show_copyright = False
# Lines of 100 columns.
html_theme_options = {"light_css_variables": {"code-font-size": "var(--font-size--small--3)"}}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
nitpicky = False

# What the chapters of the book share in one build.
WORK = tempfile.TemporaryDirectory(prefix="nmt-book-")
# The user's settings of IPython do not matter.
os.environ["NMT_BOOK"] = os.environ["IPYTHONDIR"] = WORK.name
PROFILE = Path(WORK.name, "profile_default", "ipython_kernel_config.py")
PROFILE.parent.mkdir()
# It warns that its sockets are local.
PROFILE.write_text("c.IPKernelApp.log_level = 'ERROR'\n", encoding="utf-8")
logging.getLogger("traitlets").setLevel("WARNING")

REFERENCE = Path(__file__).parent / "reference" / "commands.md"


def write_command_reference(_: Sphinx) -> None:
    """Write the page of all commands and flags, as `nmt COMMAND --help` shows them."""
    REFERENCE.write_text("\n".join(command_reference()) + "\n", encoding="utf-8")


def command_reference() -> Iterator[str]:
    """The lines of the page."""
    yield "# Commands\n\nThis page is made from the code. `nmt COMMAND --help` shows the same.\n"
    for name in command_names():
        yield f"## nmt {name}\n\n{command(name).help}\n"
        sections = panels(name)
        for kind in [
            parameter.name for parameter in command(name).params if parameter.name in registry.KINDS
        ]:
            # The help shows the flags of selected components only.
            for component in registry.names(kind):
                for title, parameters in panels(name, f"--{kind}", component).items():
                    sections.setdefault(title, parameters)
        for title, parameters in sections.items():
            yield f"### nmt {name}: {title}\n" if title else ""
            for parameter in parameters:
                listing = parameter.help.replace("\n", "\n  - ")  # of components
                yield f"`{written(parameter)}`\n: {listing}\n"


def command(*words: str) -> Any:
    """The command that `words` call."""
    return typer.main.get_command(application(words)).commands[words[0]]  # type: ignore[attr-defined]


def panels(*words: str) -> dict[str, list[Any]]:
    """The arguments and flags that the help shows, by panel."""
    found: dict[str, list[Any]] = {}
    for parameter in command(*words).params:
        if not getattr(parameter, "hidden", False):
            found.setdefault(
                (getattr(parameter, "rich_help_panel", None) or "").partition(" (")[0], []
            ).append(parameter)
    return found


def written(parameter: Any) -> str:
    """A flag with its value, or an argument, as one types it."""
    if not parameter.opts[0].startswith("-"):
        return str(parameter.metavar)
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return f"{names} {parameter.metavar}" if parameter.metavar else names


def write_math(translator: Any, node: Element, as_block: bool = False) -> None:
    """Write a formula as MathML, which browsers show without a script from another server."""
    mathml = tex2mathml(node.astext(), as_block)
    translator.body.append(f'<div style="margin: 1.5em 0">{mathml}</div>' if as_block else mathml)
    raise SkipNode


def write_math_block(translator: Any, node: Element) -> None:
    write_math(translator, node, as_block=True)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", write_command_reference)
    app.add_html_math_renderer("mathml", (write_math, None), (write_math_block, None))
