"""Debian's Chromium, and options with which it asks no network."""

from __future__ import annotations

from pathlib import Path

CHROMIUM = Path("/usr/bin/chromium")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
QUIET += ["--disable-component-update", "--no-first-run", "--disable-dev-shm-usage"]
