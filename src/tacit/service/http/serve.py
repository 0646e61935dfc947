"""Process of a party: from its configuration to a server with graceful shutdown.

On SIGTERM and SIGINT it finishes running requests, commits pending writes and closes the database.
There is no access log and no `Server` header.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import signal
import socket
from functools import partial
from typing import Any

import uvicorn

from tacit.errors import TacitError
from tacit.keyfiles import load_signing_keys
from tacit.records import RecordDirectory
from tacit.service.config import PartyConfig
from tacit.service.coordinator import Coordinator
from tacit.service.helper import Helper
from tacit.service.http import logs
from tacit.service.http.apps import coordinator_app, helper_app
from tacit.service.http.connections import GuardedConnection, raise_descriptor_limit
from tacit.service.http.helper_client import HttpHelperClient
from tacit.service.http.middleware import LimitsMiddleware
from tacit.service.store import Store

LOG = logging.getLogger("tacit.service")
FAREWELL = 10  # maximum seconds for running requests at shutdown
BACKLOG = 2048
LARGE = 2**16  # bytes of a block that malloc returns to the system
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
IDLE = 15  # seconds until an idle connection closes: longer than clients (httpx: 5) reuse theirs


def application(config: PartyConfig, **sources: Any) -> LimitsMiddleware:
    """Create a party ready to serve: signing key loaded, database migrated.

    `sources` (clock, noise, assignments) are for tests; a configuration cannot set them.
    """
    key, *former = load_signing_keys(config.signing_key, config.lock)
    store = Store(config.database)
    store.migrate()
    records = RecordDirectory(config.records, used=store.used())
    if config.role == "helper":
        return helper_app(Helper(key, store, records, former=former, **sources), config)
    coordinator = Coordinator(key, store, records, former=former, **sources)
    return coordinator_app(coordinator, config, HttpHelperClient(coordinator))


def create_server(app: LimitsMiddleware) -> uvicorn.Server:
    """The uvicorn server of an application; setting `should_exit` stops it after running requests.

    uvicorn's own protocol parses HTTP, behind a `GuardedConnection`.
    """
    config = uvicorn.Config(
        app,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        http="httptools",
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=IDLE,
        timeout_graceful_shutdown=FAREWELL,
    )
    config.load()
    guarded: Any = partial(GuardedConnection, app.connections, config.http_protocol_class)
    config.http_protocol_class = guarded
    server = uvicorn.Server(config)
    app.shutdown.begun = lambda: server.should_exit
    return server


def listening(config: PartyConfig) -> socket.socket:
    """The listening socket of this configuration.

    It listens at once: two sockets that only bind may share a port until one of them listens.
    """
    host, port = config.listen
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OSError as problem:
        bound.close()
        raise TacitError(
            f"listen is {host}:{port}, which is not available ({problem.strerror}): name another "
            "host:port, or stop the process that uses it"
        ) from None
    return bound


def trim_memory() -> None:
    """Let malloc return large freed blocks to the operating system at once.

    By default glibc raises its thresholds and retains such blocks, so a party's memory would grow
    with its largest round. Systems without `mallopt` are left unchanged.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for setting in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
        set_option(setting, LARGE)


def freeze_objects() -> None:
    """Freeze all current objects, so that the garbage collector scans only later ones.

    These are few, so full collections are cheap. They run often, and garbage of requests does not
    accumulate.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # resets the total: full ones wait until new objects exceed a quarter of it
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, 1)


def serve(config: PartyConfig, **sources: Any) -> None:
    """Run a party until it receives SIGTERM or SIGINT."""
    logs.configure(config.log_level)
    trim_memory()
    raise_descriptor_limit()
    with listening(config) as bound:
        server = create_server(application(config, **sources))
        for number in (signal.SIGTERM, signal.SIGINT):
            # uvicorn handles signals while it runs, and raises them again when it has stopped
            signal.signal(number, lambda *_: setattr(server, "should_exit", True))
        freeze_objects()
        LOG.info("party started: %s", config.address, extra={"role": config.role})
        server.run(sockets=[bound])
        LOG.info("party stopped", extra={"role": config.role})
