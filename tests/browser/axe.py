"""Accessibility violations of a page by axe-core, which is fetched from npm into the user's cache
on demand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

VERSION = "4.10.3"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def source() -> str:
    """The script; if it is unavailable, the test is skipped with the reason."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tacit-tests"
    kept = home / f"axe-{VERSION}.js"
    if not kept.exists():
        _fetch(home, kept)
    return kept.read_text(encoding="utf-8")


def _fetch(home: Path, kept: Path) -> None:
    npm = shutil.which("npm")
    home.mkdir(parents=True, exist_ok=True)
    words = [npm or "", "pack", "--silent", f"axe-core@{VERSION}", "--pack-destination", str(home)]
    if npm is None or subprocess.run(words, capture_output=True, timeout=120).returncode:
        pytest.skip("accessibility was not checked: axe-core could not be had from npm")
    packed = home / f"axe-core-{VERSION}.tgz"
    with tarfile.open(packed) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_bytes(member.read())
    partial.replace(kept)
    packed.unlink(missing_ok=True)


def violations(page: Page) -> list[str]:
    """What is wrong, where; empty if nothing is."""
    page.evaluate(source())
    found = page.evaluate(
        "(tags) => axe.run(document, { runOnly: { type: 'tag', values: tags } })", TAGS
    )
    return [
        f"{one['id']}: {node['target']} {node.get('failureSummary', '')}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
