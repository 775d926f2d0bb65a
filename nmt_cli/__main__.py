"""`python -m nmt_cli` is the `nmt` command."""

from nmt_cli.cli import main

main()
