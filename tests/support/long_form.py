"""The two forms of the tests of faults and recipes: long by `make faults`, short otherwise."""

from __future__ import annotations

import os

import pytest

LONG = os.environ.get("NMT_FAULTS") == "long"
only_long = pytest.mark.skipif(not LONG, reason="only in the long form: make faults")
