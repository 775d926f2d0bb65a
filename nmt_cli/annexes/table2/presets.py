"""The presets of the systems of Table 2: in their papers' sizes, and small ones."""

from __future__ import annotations

from nmt_cli.presets import read_presets

read_presets(__name__, __file__)
