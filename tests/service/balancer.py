"""A TCP load balancer: each connection goes to a random process that accepts it."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress


@contextmanager
def balanced(ports: Sequence[int]) -> Iterator[str]:
    """The URL in front of the processes that listen on these ports of this machine."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as front:
        accepting = threading.Thread(target=_accept, args=(front, list(ports)), daemon=True)
        accepting.start()
        yield f"http://127.0.0.1:{front.getsockname()[1]}"
        with suppress(OSError):
            front.shutdown(socket.SHUT_RDWR)


def _accept(front: socket.socket, ports: list[int]) -> None:
    while True:
        try:
            near, _ = front.accept()
        except OSError:
            return
        threading.Thread(target=_carry, args=(near, ports), daemon=True).start()


def _carry(near: socket.socket, ports: list[int]) -> None:
    with ExitStack() as stack, suppress(OSError):
        stack.enter_context(near)
        far = None
        for port in random.sample(ports, len(ports)):
            with suppress(OSError):
                far = socket.create_connection(("127.0.0.1", port), timeout=5)
                break
        if far is None:
            return
        stack.enter_context(far).settimeout(None)
        back = threading.Thread(target=_copy, args=(far, near), daemon=True)
        back.start()
        _copy(near, far)
        back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while part := source.recv(1 << 16):
            target.sendall(part)
    for one in (source, target):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
