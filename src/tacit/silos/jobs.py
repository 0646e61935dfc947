"""FLARE jobs of federations: configuration that names two installed classes, and no code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ALLOWED = ("tacit.silos.flare.FederationController", "tacit.silos.flare.RelayExecutor")


def write_job(folder: Path, sites: Sequence[str]) -> Path:
    """A job that names the two installed classes."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    meta = {
        "name": folder.name,
        "resource_spec": {},
        "min_clients": len(sites),
        "deploy_map": {"app": ["server", *sites]},
    }
    server = {"workflows": [{"id": "federation", "path": ALLOWED[0], "args": {}}]}
    client: dict[str, Any] = {
        "executors": [{"tasks": ["*"], "executor": {"path": ALLOWED[1], "args": {}}}]
    }
    empty: dict[str, list[Any]] = {
        "task_result_filters": [],
        "task_data_filters": [],
        "components": [],
    }
    files = {"config_fed_server.json": server, "config_fed_client.json": client}
    for name, content in files.items():
        document = {"format_version": 2, **content, **empty}
        (config / name).write_text(json.dumps(document), encoding="utf-8")
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return folder
