"""`nmt`, as torchrun starts it, with a fault: python rank.py FUNCTION_OF_FORKS ARGUMENTS..."""

from __future__ import annotations

import sys

import forks

from nmt_cli.cli import main

if __name__ == "__main__":
    getattr(forks, sys.argv[1])()
    main(sys.argv[2:])
