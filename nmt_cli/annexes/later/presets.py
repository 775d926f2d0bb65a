"""The presets of later papers: for small parallel corpora, and for words."""

from __future__ import annotations

from nmt_cli.presets import read_presets

read_presets(__name__, __file__)
