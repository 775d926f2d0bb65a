"""`nmt`: "Attention Is All You Need" as a command-line toolkit and a Python package.

>>> import nmt_cli                                        # doctest: +SKIP
>>> translator = nmt_cli.load("RUN/averaged")             # doctest: +SKIP
>>> translator.translate(["A dog runs ."])                # doctest: +SKIP
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt_cli.api import Translator, load, score

__version__ = "2.0.0"
__all__ = ["Translator", "__version__", "load", "score"]


def __getattr__(name: str) -> object:
    """Import the Python API when a name of it is first used: `nmt --help` needs no PyTorch."""
    if name in ("Translator", "load", "score"):
        from nmt_cli import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
