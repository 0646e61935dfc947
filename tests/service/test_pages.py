"""Contents, access control and security headers of the pages, without a browser."""

from __future__ import annotations

import base64
import copy
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Request
from tests.service.deployed import ADDRESSES, KEYS, definition_of
from tests.service.pairs import Pair, experiment_of, sqlite_pair
from tests.service.served import ADMIN, TIMING, TOKEN, Threads, served, wait_for
from tests.terms.test_words import ALL as TRUST_MODELS

from tacit.service.answers import EndReason
from tacit.service.demo import report
from tacit.service.demo.participants import VisitCounts
from tacit.service.demo.play import DemoProgress
from tacit.service.http import pages
from tacit.service.pages import experimenter, participant, sentences
from tacit.service.pages.parties import drawing
from tacit.terms import Answer, Terms
from tacit.terms.visibility import visibility
from tacit.terms.words import caution, handling, honesty, likelihood

HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)>&amp; {{7*7}} 'x'"
OPTIONS = (HOSTILE, "</title></style>", "plain")


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow helper under other tests' load is not shown as unavailable."""
    monkeypatch.setattr(pages, "PATIENCE", 30.0)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threads]:
    with served(tmp_path_factory.mktemp("pages")) as made:
        yield made


@pytest.fixture(scope="module")
def view(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A real experiment of hostile names after some rounds, one of them rejected."""
    with sqlite_pair(tmp_path_factory.mktemp("parties")) as pair:
        digest = pair.begin(experiment_of(1500, OPTIONS), question=HOSTILE)
        for come in (1.0, 1.0, 0.01):
            pair.hold(digest, lambda option: int(option == "plain"), come)
        return pair.coordinator.view(digest)


class Tags(HTMLParser):
    """All tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def render_page(view: dict[str, Any], up: bool = True) -> str:
    return experimenter.page(view, experimenter.parts(view, up), version="v", root="../")


def harmless(page: str, scripts: int) -> Tags:
    """What a page is made of, of which hostile names are nothing but text."""
    found = Tags(page)
    assert found.names.count("script") == scripts
    assert "img" not in found.names
    assert not [name for name, _ in found.attributes if name.startswith("on") or name == "style"]
    assert HOSTILE in found.texts
    return found


def test_hostile_names_are_escaped_on_the_experimenters_page(view: dict[str, Any]) -> None:
    found = harmless(render_page(view), 1)
    assert OPTIONS[1] in found.texts
    assert ("aria-label", "Options") in found.attributes


def test_hostile_names_are_escaped_in_every_part_of_it(view: dict[str, Any]) -> None:
    known = view | {"status": view["status"] | {"control": HOSTILE}}
    for name, part in experimenter.parts(known, True).items():
        assert not {"script", "img"} & set(Tags(part).names), name
        assert all(text.strip() != "49" for text in Tags(part).texts), name


def test_hostile_names_are_escaped_in_lists_and_errors() -> None:
    harmless(experimenter.index([("0" * 64, HOSTILE, "running")], ""), 0)
    harmless(experimenter.problem(HOSTILE, HOSTILE, "../"), 0)


def test_hostile_names_are_escaped_in_the_report_of_a_demonstration(view: dict[str, Any]) -> None:
    counts = VisitCounts(rejected={f"{HOSTILE}: 422": 1})
    told = DemoProgress(view["status"], view["estimates"], counts, 1.0, ("", ""), view)
    found = harmless(report.html(told), 0)
    assert any(text.startswith(f"1 times {HOSTILE}") for text in found.texts)


@pytest.mark.parametrize("high", [1, 40])
def test_hostile_names_are_escaped_on_the_participants_page(servers: Threads, high: int) -> None:
    terms = servers.terms(OPTIONS, question=HOSTILE, answer=Answer(HOSTILE, metrics=(HOSTILE,)))
    other = copy.copy(terms)
    wide = replace(terms.answer, high=Fraction(high))
    object.__setattr__(other, "answer", wide)  # its noise does not matter here
    found = harmless(participant.page(other, "running", "../../"), 1)
    assert ("name", HOSTILE) in found.attributes


def test_three_questions_are_answered_in_text_before_any_chart(view: dict[str, Any]) -> None:
    text = render_page(view)
    first = text[: text.index('id="people"')]
    answered = [first.index(f"<dt>{question}</dt>") for question in QUESTIONS]
    assert answered == sorted(answered)
    assert "<strong>" in first
    assert 'class="chart"' not in first
    assert "plain" in first


QUESTIONS = ("Which is best?", "How sure are we?", "What were people promised?")


def said(view: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """A view with some of its status or estimates changed."""
    status = {name: changed[name] for name in changed if name in view["status"]}
    found = {name: changed[name] for name in changed if name in view["estimates"]}
    return view | {"status": view["status"] | status, "estimates": view["estimates"] | found}


def test_undecided_experiments_are_not_called_decided(view: dict[str, Any]) -> None:
    assert sentences.sure(said(view, decided=None)).short == "Not decided yet."
    over = said(view, decided=None, state="finished")
    assert sentences.sure(over).short == "Not decided: nobody can tell for sure."
    decided = sentences.sure(said(view, decided="plain"))
    assert decided.short.startswith("Decided")
    assert "at most 5% of experiments, however often one looks" in decided.more


def test_fixed_time_intervals_are_not_called_anytime_valid(view: dict[str, Any]) -> None:
    once = [one | {"always": False} for one in view["estimates"]["options"]]
    assert "for one look" in sentences.sure(said(view, options=once, decided="plain")).more
    assert "normal approximations" in render_page(said(view, options=once))


def test_sample_ratio_mismatch_causes_a_warning(view: dict[str, Any]) -> None:
    unequal = said(view, sample_ratio={"p": 0.0001, "mismatch": True})
    assert "may be unfair" in sentences.sure(unequal).more


@pytest.mark.parametrize(
    ("state", "up", "words"),
    [
        ("unsigned", True, "wait for the helper's signature"),
        ("paused", True, "Nobody new is asked"),
        ("stopped", True, "Nobody is asked any more"),
        ("running", False, "The helper does not answer now"),
        ("running", True, "too few answered"),
    ],
)
def test_the_status_line_states_problems_first(
    view: dict[str, Any], state: str, up: bool, words: str
) -> None:
    ended = [one for one in view["status"]["rounds"] if one["stage"] in ("opened", "refused")]
    changed = {"state": state, "ended": "stopped-by-hand", "rounds": ended}
    assert words in sentences.standing(said(view, **changed), up)


def test_every_reason_for_an_end_has_a_sentence(view: dict[str, Any]) -> None:
    assert set(sentences.ENDINGS) == set(EndReason)
    ended = [one for one in view["status"]["rounds"] if one["stage"] == "opened"]
    for reason in EndReason:
        over = said(view, state="finished", ended=reason, rounds=ended)
        assert sentences.ENDINGS[reason] in render_page(over)


def test_answers_beyond_0_and_1_are_written_as_numbers(view: dict[str, Any]) -> None:
    terms = view["terms"] | {"answer": view["terms"]["answer"] | {"range": ["0", "40"]}}
    assert sentences.number(view | {"terms": terms})(12.345) == "12.3"
    assert sentences.number(view)(0.0213) == "2.1%"


def test_a_mean_out_of_range_is_shown_as_the_end_of_the_range(view: dict[str, Any]) -> None:
    assert sentences.number(view)(-0.051) == "0%"
    assert sentences.number(view)(1.02) == "100%"


def test_an_option_has_the_same_colour_everywhere(view: dict[str, Any]) -> None:
    made = experimenter.parts(view, True)
    for place, one in enumerate(view["estimates"]["options"]):
        assert f'class="mean o{place}' in made["intervals"] or one["mean"] is None
        row = made["shares"].split("<li>")[place + 1]
        assert f'class="fill o{place}"' in row
        assert f'class="fill o{(place + 1) % 3}"' not in row


def test_displayed_bytes_match_the_reports(view: dict[str, Any]) -> None:
    passed, rounds = view["passed"], view["status"]["rounds"]
    assert passed["reports"] == sum(one["reports"] or 0 for one in rounds)
    assert passed["sums"] == sum(one["stage"] == "opened" for one in rounds)
    assert passed["coordinator_bytes"] % passed["reports"] == 0
    assert passed["sums_bytes"] > 100 * passed["sums"]


def test_the_size_of_partial_sums_is_displayed(tmp_path: Path) -> None:
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin()
        sizes = answers_of(pair)
        pair.hold(digest, lambda _option: 1)
        passed = pair.coordinator.view(digest)["passed"]
        assert passed["sums"] == len(sizes) > 0
        assert passed["sums_bytes"] == sum(sizes.values())


def answers_of(pair: Pair) -> dict[bytes, int]:
    """The sizes of what the helper answers from now on, each round's once."""
    sizes: dict[bytes, int] = {}
    before = pair.link.exchange

    def exchange(identity: bytes, listing: bytes) -> tuple[bytes, bytes]:
        theirs, answer = before(identity, listing)
        if answer:
            sizes[identity] = len(answer)
        return theirs, answer

    pair.link.exchange = exchange
    return sizes


@pytest.mark.parametrize("made", TRUST_MODELS)
def test_the_data_flow_is_drawn_for_the_trust_model_of_the_terms(
    view: dict[str, Any], made: Callable[[], Terms]
) -> None:
    terms = made()
    drawn = experimenter.parts(view | {"terms": terms.document()}, True)["parties"]
    found, seen = Tags(drawn), visibility(terms)
    assert found.names.count("h3") == 1 + len(terms.parties)
    assert drawn.count('class="passed ') == len(seen.passages)
    for party, sight in zip(terms.parties, seen.sights, strict=True):
        assert {party.role.capitalize(), party.address, sight.sees, sight.never} <= set(found.texts)
    for passage in seen.passages:
        assert any(text.endswith(passage.several) for text in found.texts)
    assert seen.device in found.texts
    assert ("Helper" in found.texts) == (terms.trust == "two-servers")


@pytest.mark.parametrize("made", TRUST_MODELS)
def test_the_guarantee_is_explained_for_the_trust_model(
    view: dict[str, Any], made: Callable[[], Terms]
) -> None:
    terms = made()
    promised = sentences.promised(view | {"terms": terms.document()})
    for line in (*caution(terms), *likelihood(terms.guarantee, "a person"), honesty(terms)):
        assert line in promised.more
    assert f"ε = {terms.guarantee.epsilon}" in promised.more
    assert ("δ" in promised.more) == bool(terms.guarantee.delta)


@pytest.mark.parametrize("made", TRUST_MODELS)
def test_participants_of_every_trust_model_read_its_meaning(made: Callable[[], Terms]) -> None:
    """Browsers take part where their device can; elsewhere nobody is asked to agree."""
    terms = made()
    found = Tags(participant.page(terms, "running", "../../"))
    text = " ".join(found.texts)
    said = (*caution(terms), *likelihood(terms.guarantee), honesty(terms), *handling(terms))
    for line in said:
        assert line in text
    browsers = terms.trust == "local" or terms.noise.by == "servers"
    assert ("Your browser is checking the terms." in text) == browsers
    assert ("in this experiment: take part with an app." in text) == (not browsers)
    lanes = [value for name, value in found.attributes if name == "data-lane"]
    assert tuple(lanes) == visibility(terms).receivers


def test_organisation_purpose_and_contact_precede_the_terms(servers: Threads) -> None:
    told = {"organisation": "A hospital", "purpose": "better breaks", "contact": "us@b.example"}
    text = participant.page(servers.terms(OPTIONS, **told), "running", "../../")
    before = text[: text.index('<dl class="terms')]
    assert all(word in before for word in told.values())
    silent = participant.page(servers.terms(OPTIONS), "running", "../../")
    assert 'class="asks"' not in silent


@pytest.mark.parametrize("state", ["stopped", "finished"])
def test_an_ended_experiment_offers_no_agreement(servers: Threads, state: str) -> None:
    assert "I agree" in participant.page(servers.terms(OPTIONS), "running", "../../")
    over = participant.page(servers.terms(OPTIONS), state, "../../")
    assert "I agree" not in over
    assert 'data-do="join"' not in over
    assert "nobody is asked any more" in over


def test_parallel_rounds_are_one_step_of_the_chart(view: dict[str, Any]) -> None:
    """Three options were tried at once, twice; every step has the answers until then."""
    side_by_side = experimenter.columns(view["status"]["rounds"])
    found = experimenter.steps(view["history"], side_by_side)
    ended = [column for column in side_by_side if _over(column)]
    assert len(found) == len(ended) < len(view["history"])
    assert found[0]["answers"] == sum(one["reports"] or 0 for one in ended[0].values())
    assert all(one["mean"] is not None for one in found[0]["options"])
    counts = [one["answers"] for one in found]
    assert counts == sorted(counts)
    assert counts[-1] == view["status"]["people"]["reported"]


def _over(column: dict[str, dict[str, Any]]) -> bool:
    return all(one["stage"] in ("opened", "refused") for one in column.values())


def test_charts_have_dates_and_numbers_on_their_axes(view: dict[str, Any]) -> None:
    made = experimenter.parts(view, True)
    first = datetime.fromtimestamp(view["history"][0]["time"], tz=UTC)
    for part in ("intervals", "rounds"):
        assert f"{first:%Y-%m-%d}" in made[part]
    total = view["status"]["people"]["reported"]
    assert f"<small>{total:,} answers</small>" in made["intervals"]
    assert "100%" in Tags(made["intervals"]).texts


def test_every_dash_and_open_end_is_explained(view: dict[str, Any]) -> None:
    control, first, second = view["estimates"]["options"]
    known = control | {"mean": 0.2, "lift": None, "lift_low": None, "lift_high": None}
    without = [known, first | {"mean": None, "lift": None}, second | {"mean": 0.5, "lift": None}]
    about = said(view, options=without, control=control["option"])
    notes = sentences.unknowns(about)
    assert [note.partition(":")[0] for note in notes] == ["–", "No lift"]
    texts = Tags(experimenter.parts(about, True)["options"]).texts
    assert set(notes) < set(texts)
    assert "control" in texts
    open_ended = {"mean": 0.5, "lift": 1.5, "lift_low": 0.1, "lift_high": None}
    found = said(view, options=[known, first | open_ended], control=control["option"])
    assert [note.partition(":")[0] for note in sentences.unknowns(found)] == ["No limit"]
    assert "+10% to no limit" in Tags(experimenter.parts(found, True)["options"]).texts
    closed = open_ended | {"lift_high": 2.0}
    found = said(view, options=[known, first | closed], control=control["option"])
    assert sentences.unknowns(found) == []


# Over HTTP


def test_the_pages_have_a_strict_content_security_policy(servers: Threads) -> None:
    digest = servers.begin(question="Strict?").hex()
    for path in ("/", f"/e/{digest}", f"/e/{digest}/take-part", f"/e/{'0' * 64}", "/e/nonsense"):
        said = servers.get(0, path)
        assert said.status_code == (404 if path.endswith(("0" * 64, "nonsense")) else 200)
        assert said.headers["content-type"] == "text/html; charset=utf-8"
        policy = said.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "unsafe" not in policy
        assert said.headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?! type=\"module\" src=)|<style|\sstyle=", said.text)
    assert (
        servers.urls[1]
        in servers.get(0, f"/e/{digest}/take-part").headers["content-security-policy"]
    )
    assert servers.urls[1] not in servers.get(0, f"/e/{digest}").headers["content-security-policy"]


def test_an_address_that_would_break_the_policy_is_omitted() -> None:
    assert pages._origin("https://a.example/x; script-src *") == ["https://a.example"]
    for address in ("https://a.example;script-src *", "https://'unsafe-inline'", "x://a"):
        assert pages._origin(address) == []


def test_static_files_are_served_compressed_and_cached(servers: Threads) -> None:
    first = servers.get(0, "/static/page.css")
    assert (first.headers["content-type"], first.headers["content-encoding"]) == (
        "text/css; charset=utf-8",
        "gzip",
    )
    plain = servers.get(0, "/static/page.css", headers={"Accept-Encoding": "identity"})
    assert plain.text == first.text
    again = servers.get(0, "/static/page.css", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for name in ("nothing.css", "..%2Fapps.py", "__init__.py"):
        assert servers.get(0, f"/static/{name}").status_code == 404


def events(lines: Iterator[str], count: int) -> list[dict[str, Any]]:
    """The next events of a stream."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        line = next(lines)
        if line.startswith("data: "):
            found.append(json.loads(line.removeprefix("data: ")))
    return found


def version_of(page: str) -> str:
    """What a visitor of the page has seen."""
    return re.search('data-seen="([0-9a-f]+)"', page)[1]  # type: ignore[index]


def version(servers: Threads, digest: bytes) -> str:
    return version_of(servers.get(0, f"/e/{digest.hex()}").text)


def wait_open(servers: Threads, digest: bytes) -> None:
    """Until all of the first rounds are open and shown so."""
    wait_for(lambda: {"open"} == {one["stage"] for one in servers.status(digest)["rounds"]})
    places = sum(one["places"] for one in servers.status(digest)["rounds"])
    page = f"/e/{digest.hex()}"
    wait_for(lambda: f"{places:,} slots; who comes" in servers.get(0, page).text)


def test_a_stream_reports_changes_only(servers: Threads) -> None:
    digest = servers.begin(question="Changing?")
    wait_open(servers, digest)
    path = f"{servers.urls[0]}/e/{digest.hex()}/live?seen="
    with httpx.stream("GET", path, timeout=30) as unseen:
        (everything,) = events(unseen.iter_lines(), 1)
    assert set(everything["parts"]) == set(
        experimenter.parts(servers.coordinator.view(digest), True)
    )
    with httpx.stream("GET", path + version(servers, digest), timeout=30) as stream:
        servers.coordinator.pause(digest)
        (changed,) = events(stream.iter_lines(), 1)
    assert set(changed["parts"]) == {"state"}


def test_a_stream_is_silent_when_participants_join(
    servers: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "FRESH", 0.0)
    monkeypatch.setattr(pages, "PACE", 0.02)
    digest = servers.begin(question="Silent?")
    wait_open(servers, digest)
    path = f"{servers.urls[0]}/e/{digest.hex()}/live?seen={version(servers, digest)}"
    with httpx.stream("GET", path, timeout=30) as stream:
        for _ in range(5):
            servers.place(digest)
            time.sleep(0.1)  # a look or two
        servers.coordinator.pause(digest)
        (first,) = events(stream.iter_lines(), 1)
    assert set(first["parts"]) == {"state"}


def test_the_public_view_changes_when_rounds_end_not_when_participants_join(
    tmp_path: Path,
) -> None:
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin()
        pair.step()

        def seen(exact: bool) -> pages.ExperimentSnapshot:
            view = (pair.coordinator.view if exact else pair.coordinator.public)(digest)
            return pages.ExperimentSnapshot(view, experimenter.parts(view, True), "")

        places = sum(one["places"] for one in pair.coordinator.status(digest)["rounds"])
        before, known = seen(False), {seen(True).version}
        for come in (1, 1, 1, places - 3, 1, 2):  # the last three are served and not asked
            pair.participants(digest, come)
            assert seen(False) == before
            known.add(seen(True).version)
        assert len(known) == 7
        assert before.view["status"]["people"] | {"planned": 0} == dict.fromkeys(
            ("asked", "reported", "served", "planned"), 0
        )
        pair.clock.now += 10_000
        pair.helper.step()
        pair.step()
        people = seen(False).view["status"]["people"]
        assert (people["asked"], people["served"]) == (places, 3)


@pytest.mark.extended
def test_streams_beyond_the_limit_are_rejected(tmp_path: Path) -> None:
    with served(tmp_path, streams=1) as few:
        digest = few.begin().hex()
        path = f"{few.urls[0]}/e/{digest}/live"
        with httpx.stream("GET", path, timeout=30) as first:
            lines = first.iter_lines()
            assert events(lines, 1)
            rejected = httpx.get(path, timeout=30)
            assert (rejected.status_code, rejected.headers["retry-after"]) == (503, "30")
        wait_for(lambda: few.get(0, f"/e/{digest}").status_code == 200)

        def free() -> bool:
            with httpx.stream("GET", path, timeout=30) as next_:
                return next_.status_code == 200

        wait_for(free)


@pytest.mark.extended
def test_a_stopping_process_does_not_wait_for_streams(tmp_path: Path) -> None:
    with served(tmp_path) as servers:
        digest = servers.begin().hex()
        stream = httpx.stream("GET", f"{servers.urls[0]}/e/{digest}/live", timeout=30)
        with stream as answer:
            lines = answer.iter_lines()
            assert next(lines).startswith("retry")
            servers.fronts[0].shutdown.begun = lambda: True
            assert not any(line.startswith("nonsense") for line in lines)  # it comes to its end


def test_two_processes_on_one_database_show_the_same_version(tmp_path: Path) -> None:
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin()
        pair.step()
        marks = []
        for _ in range(2):
            view = pair.coordinator.view(digest)
            marks.append(pages.ExperimentSnapshot(view, experimenter.parts(view, True), "").version)
            pair.restart()
        pair.participants(digest, 3)
        view = pair.coordinator.view(digest)
        assert marks[0] == marks[1]
        assert (
            pages.ExperimentSnapshot(view, experimenter.parts(view, True), "").version != marks[0]
        )


def test_results_can_be_restricted_to_the_token(tmp_path: Path) -> None:
    with served(tmp_path) as servers:
        text = servers.members[0].path.read_text()
        servers.members[0].path.write_text(f'results = "token"\n{text}')
        assert servers.members[0].config.results == "token"
    may = pages._access_rule(servers.members[0].config)

    def asked(scheme: str, secret: str) -> bool:
        headers = [(b"authorization", f"{scheme} {secret}".encode())] if scheme else []
        return may(Request({"type": "http", "headers": headers}))

    def packed(secret: str) -> str:
        return base64.b64encode(secret.encode()).decode()

    assert asked("Basic", packed(f":{TOKEN}"))
    assert asked("Basic", packed(f"anybody:{TOKEN}"))
    assert asked("Bearer", TOKEN)
    for scheme, secret in (
        ("", ""),
        ("Basic", packed(TOKEN)),
        ("Basic", packed(":wrong")),
        ("Basic", "%%%"),
        ("Bearer", "wrong"),
        ("Digest", TOKEN),
    ):
        assert not asked(scheme, secret)


def test_a_password_does_not_authorise_admin_calls(servers: Threads) -> None:
    digest = servers.begin(question="Changed?").hex()
    secret = base64.b64encode(f":{TOKEN}".encode()).decode()
    said = servers.post(
        0, f"/experiments/{digest}/stop", headers={"Authorization": f"Basic {secret}"}
    )
    assert said.status_code == 401
    assert servers.post(0, f"/experiments/{digest}/stop", headers=ADMIN).status_code == 204


def test_unsigned_terms_are_shown_without_participation(servers: Threads) -> None:
    terms: Terms = servers.terms(("a", "b"), question="Signed?")
    experiment = experiment_of(4000, ("a", "b"))
    digest = servers.coordinator.create(terms, experiment, TIMING).hex()
    assert "wait for the helper" in servers.get(0, f"/e/{digest}").text
    assert "has not begun" in servers.get(0, f"/e/{digest}/take-part").text
    assert "Not signed yet" in servers.get(0, "/").text


@pytest.mark.parametrize(
    ("trust", "more", "browsers"),
    [
        ("two-servers", {}, True),
        ("two-servers", {"proofs": True}, True),
        ("local", {}, True),
        ("shuffler", {}, True),
        ("secure-aggregation", {}, False),
    ],
)
def test_pages_state_whether_browsers_can_take_part(
    trust: str, more: dict[str, Any], browsers: bool
) -> None:
    """Both pages: the experimenter's beside who sees what, the participant's before the button."""
    terms = definition_of(trust, **more).terms(ADDRESSES[0], KEYS[0])
    passed = dict.fromkeys(
        ("reports", "sums", "sums_bytes", "coordinator_bytes", "helper_bytes"), 0
    )
    drawn = drawing(terms, passed)
    assert {card.role for card in drawn.cards} == {party.role for party in terms.parties}
    assert ("in a browser or with an app" in drawn.browsers) == browsers
    page = participant.page(terms, "running", "../../")
    assert ("Your browser is checking the terms." in page) == browsers
    for said in (page, drawn.browsers):
        assert (participant.WHICH_BROWSERS in said) == (not browsers)
