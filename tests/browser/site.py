"""The network of the browser tests: a third host that serves the page, and two servers with
controllable clock, attacks and failures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from tests.service.parties import ADDRESSES, KEYS, Parties, terms

from tacit.signatures import public_key
from tacit.terms import Party, Terms

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

ROOT = Path(__file__).parent.parent.parent
CLIENT = ROOT / "clients" / "js"
PAGE = b"<!doctype html><meta charset=utf-8><title>a page of a third host</title>"
FILES = {
    "/tacit.js": CLIENT / "tacit.js",
    "/two-servers.js": CLIENT / "two-servers.js",
    "/shuffler.js": CLIENT / "shuffler.js",
    "/local.js": CLIENT / "local.js",
    "/hpke.js": CLIENT / "hpke.js",
    "/contextual.js": CLIENT / "contextual.js",
    "/moments.js": CLIENT / "moments.js",
    "/copies.js": CLIENT / "copies.js",
    "/prio3.js": CLIENT / "prio3.js",
    "/memory.js": CLIENT / "memory.js",
    "/check.mjs": ROOT / "tests" / "browser" / "check.mjs",
}
Answer = Callable[[str, str, bytes, dict[str, str]], tuple[int, bytes | Iterator[bytes]]]
"""Whatever is asked for gets a status and bytes, or parts of them until nobody listens."""


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """An HTTP server on loopback, in a thread; its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            preflight = self.command == "OPTIONS"
            status, content = (
                (204, b"")
                if preflight
                else answer(self.command, self.path, body, dict(self.headers))
            )
            self.send_response(status)
            self.send_header("Access-Control-Allow-Origin", "*")
            if preflight:
                self.send_header("Access-Control-Allow-Methods", "GET, POST, PUT")
                self.send_header("Access-Control-Allow-Headers", "content-type, tacit-invitation")
            kind = "text/javascript" if self.path.endswith("js") else "text/html"
            self.send_header("Content-Type", kind)
            if isinstance(content, bytes):
                if status != 204:
                    self.send_header("Content-Length", str(len(content)))
                content = iter((content,))
            else:
                self.close_connection = True
            self.end_headers()
            with suppress(OSError):
                for part in content:
                    self.wfile.write(part)

    for method in ("GET", "POST", "PUT", "OPTIONS"):
        setattr(Handler, f"do_{method}", Handler.any)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def static(_method: str, path: str, _body: bytes, _headers: dict[str, str]) -> tuple[int, bytes]:
    """The page, the module, and what tests bring."""
    return (200, FILES[path].read_bytes()) if path in FILES else (200, PAGE)


class World:
    """Two servers over loopback and the address of a third host."""

    def __init__(self, site: str, addresses: tuple[str, str]) -> None:
        self.site, self.addresses = site, addresses
        self.lock = threading.Lock()
        self.start(terms())

    def start(self, of: Terms, **changes: Any) -> Parties:
        """Other servers in the same place, with an experiment of these terms."""
        self.parties = Parties(self.located(of, **changes))
        return self.parties

    def located(self, of: Terms | None = None, **changes: Any) -> Terms:
        """Terms that state the servers' addresses."""
        where = tuple(
            Party(role, address, public_key(key))
            for role, address, key in zip(
                ("coordinator", "helper"), self.addresses, KEYS, strict=False
            )
        )
        return replace(of or terms(), **({"parties": where} | changes))

    def answer(self, role: int) -> Answer:
        def say(method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
            kept = {name: headers[name] for name in headers if name.lower() in SEEN}
            request = httpx.Request(method, ADDRESSES[role] + path, content=body, headers=kept)
            with self.lock:
                reply = self.parties.answer(request)
            return reply.status_code, reply.content

        return say


SEEN = ("content-type", "tacit-invitation", "cookie", "referer", "authorization")


@contextmanager
def world() -> Iterator[World]:
    """The three hosts."""
    made: list[World] = []

    def later(role: int) -> Answer:
        return lambda *request: made[0].answer(role)(*request)

    with ExitStack() as stack:
        site = stack.enter_context(serving(static))
        first, second = (stack.enter_context(serving(later(role))) for role in (0, 1))
        made.append(World(site, (first, second)))
        yield made[0]


class ThrownError(Exception):
    """What the module threw."""

    def __init__(self, said: dict[str, Any]) -> None:
        super().__init__(f"{said['name']} ({said.get('field')}): {said['message']} {said['stack']}")
        self.name, self.field = said["name"], said.get("field")


CALL = """async ([method, given]) => {
  try {
    return { gave: await device[method](...given) };
  } catch ({ constructor, field, message, stack }) {
    return { threw: { name: constructor.name, field, message, stack } };
  }
}"""
OPEN = """async ([address, digest, pinned, { unlocked, ...options }]) => {
  window.tacit = await import("/tacit.js");
  window.drawn = [];
  if (!window.draws) {
    window.draws = crypto.getRandomValues.bind(crypto);
    crypto.getRandomValues = (array) => (window.drawn.push(array.length), window.draws(array));
  }
  try {
    const all = { pinned, now: () => window.clock, ...options };
    if (unlocked) all.storage = { ...tacit.browserStorage(), alone: (what, wait, work) => work() };
    window.device = await tacit.Device.open(address, digest, all);
    return { gave: device.terms };
  } catch ({ constructor, field, message, stack }) {
    return { threw: { name: constructor.name, field, message, stack } };
  }
}"""


def result_of(said: dict[str, Any]) -> Any:
    if "threw" in said:
        raise ThrownError(said["threw"])
    return said.get("gave")


class Tab:
    """A page of the third host with a device in it."""

    def __init__(self, context: BrowserContext, world: World) -> None:
        self.page: Page = context.new_page()
        self.world = world
        self.page.goto(world.site)
        self.tell()

    def tell(self) -> None:
        """The page's clock is the servers'."""
        self.page.evaluate("now => { window.clock = now }", self.world.parties.clock.now * 1000)

    def open(
        self, experiment: bytes | None = None, pins: tuple[bytes, ...] = (), **options: Any
    ) -> Any:
        """Opens the experiment; gives the terms."""
        digest = (experiment or self.world.parties.experiment).hex()
        first, second = pins or tuple(public_key(key) for key in KEYS[:2])
        pinned = {"coordinator": first.hex(), "helper": second.hex()}
        self.tell()
        asked = [self.world.addresses[0], digest, pinned, options]
        return result_of(self.page.evaluate(OPEN, asked))

    def call(self, method: str, *arguments: Any) -> Any:
        """What a method of the device gives; raises what it throws."""
        self.tell()
        return result_of(self.page.evaluate(CALL, [method, list(arguments)]))

    def reload(self) -> None:
        """Everything that is not stored is lost."""
        self.page.reload()
        self.tell()

    def drawn(self) -> list[int]:
        """How many random bytes were drawn each time."""
        sizes: list[int] = self.page.evaluate("window.drawn")
        return sizes

    def stored(self, database: str = "tacit") -> Any:
        """Everything that is in the ledger; bytes as lists."""
        return self.page.evaluate(STORED, database)


STORED = """name => new Promise((done, fail) => {
  const asked = indexedDB.open(name);
  asked.onerror = () => fail(asked.error);
  asked.onsuccess = () => {
    const store = asked.result.transaction("ledger").objectStore("ledger");
    store.get(0).onsuccess = (event) => {
      asked.result.close();
      done(JSON.parse(JSON.stringify(event.target.result ?? { own: null, entries: [] })));
    };
  };
})"""


def both(tabs: list[Tab], script: str) -> None:
    """Starts the same in several tabs at nearly the same time, and waits for all of them."""
    for tab in tabs:
        tab.tell()
    for tab in tabs:
        tab.page.evaluate(
            f"() => {{ window.done = (async () => {{ {script} }})().catch(() => 0) }}"
        )
    for tab in tabs:
        tab.page.evaluate("() => window.done")
