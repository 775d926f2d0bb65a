"""Fixtures of these tests."""

from tiny_checkpoints import make_checkpoint, tiny_checkpoint, tiny_export

__all__ = ["make_checkpoint", "tiny_checkpoint", "tiny_export"]
