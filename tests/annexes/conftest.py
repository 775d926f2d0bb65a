"""Fixtures of these tests."""

from tiny_checkpoints import make_checkpoint, tiny_checkpoint, tiny_export
from toys import padded, toy

__all__ = ["make_checkpoint", "padded", "tiny_checkpoint", "tiny_export", "toy"]
