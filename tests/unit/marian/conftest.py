"""Fixtures shared by what exports and imports models."""

from exported_models import made, odd_lines, taught, text

__all__ = ["made", "odd_lines", "taught", "text"]
