"""Fixtures of these tests."""

from small_transformer import build
from tiny_checkpoints import make_checkpoint, tiny_checkpoint, tiny_export
from toys import padded, toy

__all__ = ["build", "make_checkpoint", "padded", "tiny_checkpoint", "tiny_export", "toy"]
