"""Tests of the pure parts of the benchmarks: nothing here measures time or needs another program."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
