"""What the tests of recovery share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_power_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here cuts the power, so nothing needs to be on the disk; that is half of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
