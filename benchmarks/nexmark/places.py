"""Where the events are."""

from __future__ import annotations

from pathlib import Path

__all__ = ["ROOT"]

ROOT = Path(__file__).resolve().parent.parent.parent / ".bench" / "nexmark"
