"""Two processes of one coordinator on one PostgreSQL: live pages, and results behind the admin
token.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.conftest import fresh
from tests.service.pairs import experiment_of
from tests.service.served import (
    ADMIN,
    NONE,
    TOKEN,
    Process,
    Processes,
    beside,
    processes,
    wait_for,
)
from tests.service.test_pages import version_of

pytestmark = pytest.mark.extended  # test_pages.py has streams and tokens of one process

KNOWN = {"TACIT_RESULTS": "token", "TACIT_LOG_LEVEL": "debug"}
PACKED = base64.b64encode(f":{TOKEN}".encode()).decode()
PASSWORD = {"Authorization": f"Basic {PACKED}"}
RESULTS = {  # where they are, and what tells them there
    "/": "Secret?",
    "/e/{}": 'class="band',
    "/e/{}/live": "",
    "/experiments/{}/status": '"sums":[',
    "/experiments/{}/estimates": '"mean":',
    "/experiments/{}/export": '"history":[{',
}


@contextmanager
def twins(directory: Path, postgresql: str) -> Iterator[tuple[Processes, str]]:
    """A coordinator of two processes and a helper; the address of the second process."""
    database = fresh(postgresql)
    urls = (database("coordinator"), database("helper"))
    with processes(directory, urls, environment=KNOWN) as both:
        second = Process(beside(both.members[0]), environment=KNOWN)
        both.processes = (*both.processes, second)
        try:
            second.start()
            yield both, second.member.url
        finally:
            second.kill()
            second.free()


@pytest.fixture(scope="module")
def several(
    tmp_path_factory: pytest.TempPathFactory, postgresql: str
) -> Iterator[tuple[Processes, str]]:
    with twins(tmp_path_factory.mktemp("several"), postgresql) as made:
        yield made


@contextmanager
def stream(address: str, digest: bytes, seen: str = "") -> Iterator[Iterator[dict[str, Any]]]:
    """The events of a page from now on."""
    path = f"{address}/e/{digest.hex()}/live?seen={seen}"
    with httpx.stream("GET", path, headers=PASSWORD, timeout=30) as answer:
        assert answer.status_code == 200
        marked = (line for line in answer.iter_lines() if line.startswith("data: "))
        yield (json.loads(line.removeprefix("data: ")) for line in marked)


def get(url: str, headers: Mapping[str, str] = NONE) -> httpx.Response:
    """A response, also of a slow process."""
    return httpx.get(url, headers=headers, timeout=30)


def version(address: str, digest: bytes) -> str:
    """What a page that was loaded here has seen."""
    said = get(f"{address}/e/{digest.hex()}", PASSWORD)
    return version_of(said.raise_for_status().text)


def until(said: Iterator[dict[str, Any]], part: str, words: str) -> dict[str, Any]:
    """The first event in which a part holds these words."""
    return next(one for one in said if words in one["parts"].get(part, ""))


def test_a_change_reaches_pages_of_another_process(
    several: tuple[Processes, str],
) -> None:
    both, second = several
    first = both.urls[0]
    digest = both.begin(experiment_of(1500, ("a", "b")))
    both.place(digest)
    for changing, watching in ((first, second), (second, first)):
        wait_for(lambda: version(first, digest) == version(second, digest))
        with stream(watching, digest, version(changing, digest)) as said:
            for action, words in (("pause", "Paused"), ("resume", "Running")):
                path = f"{changing}/experiments/{digest.hex()}/{action}"
                assert httpx.post(path, headers=ADMIN, timeout=30).status_code == 204
                assert "terms" not in until(said, "state", words)["parts"]
    with stream(first, digest) as one, stream(second, digest) as other:
        both.hold(digest, lambda option: int(option == "b"))
        moved = [until(said, "intervals", 'class="band') for said in (one, other)]
    assert moved[0]["told"] == moved[1]["told"]
    wait_for(lambda: version(first, digest) == version(second, digest))


def test_without_the_token_streams_reveal_no_results(several: tuple[Processes, str]) -> None:
    """What is answered is what everybody is answered about an experiment that there is not."""
    both, second = several
    digest = both.begin(experiment_of(1500, ("first", "other")), question="Secret?")
    waiting = both.place(digest)
    offered = both.get(0, f"/e/{digest.hex()}/take-part").text
    both.report(both.pinned(digest), waiting, int(waiting.option == "other"))
    both.hold(digest, lambda option: int(option == "other"))
    wait_for(lambda: both.coordinator.estimates(digest)["options"][1]["mean"])
    wrong = {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {PACKED[:-4]}"}
    for address in (both.urls[0], second):
        for path, word in RESULTS.items():
            url = f"{address}{path.format(digest.hex())}"
            for headers in ({}, *wrong):
                rejected = get(url, headers)
                nowhere = get(f"{address}{path.format('0' * 64)}", headers)
                assert (rejected.status_code, rejected.content) == (401, nowhere.content)
            if not path.endswith("/live"):
                told = get(url, PASSWORD if path.startswith("/e/") else ADMIN)
                assert word in told.raise_for_status().text
        with stream(address, digest) as said:
            assert until(said, "intervals", RESULTS["/e/{}"])
        assert get(f"{address}/e/{digest.hex()}/take-part").text == offered
    for process in both.processes:
        log = process.log.read_text()
        assert log
        assert TOKEN not in log
        assert PACKED not in log
