"""The browser's device holds the same vectors as Python, in Node."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy import stats
from tests.browser import make_vectors
from tests.browser.site import World, world
from tests.browser.vectors import CLIENT, RUNNER, known
from tests.service.parties import KEYS, PINS, Parties, terms
from tests.terms.mutations import mutated
from tests.vdaf.test_vectors import DRAFTS, OWN

from tacit.aggregation import OwnNoise, SumView, TwoServerRound, TwoServerSession, accept
from tacit.aggregation.announcements import endorse
from tacit.aggregation.verified import MODULUS
from tacit.aggregation.wire import pack_fraction
from tacit.client import Ledger
from tacit.client.invitations import without_secret
from tacit.errors import Rejected
from tacit.service import invitations
from tacit.terms import ROLES, Noise, StatedGuarantee, Terms
from tacit.trust import TrustModel

NODE = shutil.which("node")
FALSE_ALARM = 1e-6
pytestmark = pytest.mark.skipif(
    NODE is None, reason="the browser's device was not held against the vectors: no Node.js"
)


def node(function: str, given: Any) -> Any:
    """What a function of check.mjs gives."""
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--no-warnings", str(RUNNER), function],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_device_agrees_with_every_vector_in_node() -> None:
    assert node("failures", known()) == []


@pytest.mark.extended
def test_the_vectors_equal_what_python_generates() -> None:
    assert json.loads(make_vectors.FILE.read_text(encoding="utf-8")) == make_vectors.vectors()


def test_altered_terms_and_rounds_get_the_same_verdict_as_in_python() -> None:
    texts, rounds = make_vectors.mutated(2026, 600), make_vectors.altered_rounds(2027, 200)
    assert any(one["digest"] for one in texts)
    assert any(one["cost"] for one in rounds)
    found = node("verdicts", {"texts": [one["text"] for one in texts], "rounds": rounds})
    assert found["digests"] == [one["digest"] for one in texts]
    assert found["costs"] == [one["cost"] for one in rounds]


def test_a_browser_rejects_shuffler_terms_whatever_their_delta() -> None:
    """Python accepts the first and rejects the second, whose shares have a delta above 0."""
    parties = tuple(
        replace(party, role=role)
        for party, role in zip(terms().parties, ROLES[TrustModel.SHUFFLER], strict=True)
    )
    guarantee = StatedGuarantee(Fraction(1), Fraction(1, 10**12), 2)
    noise = Noise(Fraction(2), "devices")
    made = terms(trust=TrustModel.SHUFFLER, guarantee=guarantee, noise=noise, parties=parties)
    texts = [made.encode().decode(), mutated(made, ("guarantee", "delta"), "0")]
    with pytest.raises(Rejected, match="delta is 0: must be at least"):
        Terms.decode(texts[1].encode())
    assert node("verdicts", {"texts": texts})["digests"] == [None, None]


@pytest.mark.parametrize("length", [1, 2, 12])
def test_shares_from_javascript_are_summed_by_python_servers(length: int) -> None:
    noise = OwnNoise(4, Fraction(4 * length), lambda _: 0)
    session = TwoServerSession(3, 2, 1_000_003, length, noise)
    values = [[(place + metric) % 5 for metric in range(length)] for place in range(3)]
    shares = node(
        "halves",
        {
            "terms": session.pinned.terms.encode().decode(),
            "announcement": session.announcement.hex(),
            "places": [session.server(0).slot(place).encode().hex() for place in range(3)],
            "values": values,
        },
    )
    for report in shares:
        for role, half in enumerate(report):
            session.server(role).take(bytes.fromhex(half), session.now)
    sums = tuple(sum(column) for column in zip(*values, strict=True))
    assert session.finish() == SumView(sums, 3)


def proof_vectors() -> dict[str, Any]:
    """Seeds and reports of the VDAF draft's vectors, where they are found, and of ours."""
    xofs, reports, histograms = [], [], []
    for file in (*DRAFTS, *OWN):
        vector = json.loads(file.read_text(encoding="utf-8"))
        if file.stem.startswith("XofTurboShake128"):
            asked = {name: vector[name] for name in ("seed", "dst", "binder")}
            xofs.append(asked | {"name": file.stem, "bytes": vector["expanded_vec_field128"]})
        known = file.stem.startswith(("Prio3Count_", "Prio3Sum_")) and vector["shares"] == 2
        done = any(step["operation"] == "shard" for step in vector.get("operations", ()))
        for report in vector["reports"] if known and done else ():
            reports.append(
                {
                    "name": file.stem,
                    "limit": vector.get("max_measurement"),
                    "context": vector["ctx"],
                    "measurement": report["measurement"],
                    "drawn": report["rand"],
                    "shares": report["input_shares"],
                }
            )
        for report in vector["reports"] if "chunk_length" in vector and done else ():
            histograms.append(
                {
                    "name": file.stem,
                    "length": vector["length"],
                    "chunk": vector["chunk_length"],
                    "context": vector["ctx"],
                    "measurement": report["measurement"],
                    "nonce": report["nonce"],
                    "drawn": report["rand"],
                    "shares": [report["public_share"], *report["input_shares"]],
                }
            )
    return {"xofs": xofs, "reports": reports, "histograms": histograms}


def test_proofs_from_javascript_match_the_vectors_byte_for_byte() -> None:
    """Count, Sum up to limits of 10^15, Histogram; the draft's vectors where they are found."""
    vectors = proof_vectors()
    assert {"Prio3Count_tacit", "Prio3Sum_tacit_1", "Prio3Sum_tacit_large"} <= {
        one["name"] for one in vectors["reports"]
    }
    assert len(vectors["histograms"]) > 5
    assert node("proofs", vectors) == []
    for one in vectors["reports"]:
        one["measurement"] = 1 - min(one["measurement"], 1)
    for one in vectors["histograms"]:
        one["drawn"] = "00" + one["drawn"][2:]
    wrong = node("proofs", vectors)
    assert len(wrong) == len(vectors["reports"]) + len(vectors["histograms"])


def test_proofs_from_javascript_verify_at_python_servers() -> None:
    """All levels of two metrics; the servers drop nothing."""
    noise = OwnNoise(6, Fraction(12), lambda _: 0)
    session = TwoServerSession(7, 2, MODULUS, 2, noise, verified=True)
    values = [[place, 6 - place] for place in range(7)]
    shares = node(
        "halves",
        {
            "terms": session.pinned.terms.encode().decode(),
            "announcement": session.announcement.hex(),
            "places": [session.server(0).slot(place).encode().hex() for place in range(7)],
            "values": values,
        },
    )
    for report in shares:
        for role, half in enumerate(report):
            session.server(role).take(bytes.fromhex(half), session.now)
    assert session.finish() == SumView((21, 21), 7)


def test_rounding_and_splitting_are_uniform() -> None:
    """Two chi-squared statistics, each with a false alarm in a million runs."""
    found = node("draws", {"count": 20_000})
    assert found["levels"] < stats.chi2.isf(FALSE_ALARM, 1)
    assert found["parts"] < stats.chi2.isf(FALSE_ALARM, 10)


def opening(hosts: World) -> dict[str, Any]:
    """What a device is released with."""
    return {
        "address": hosts.addresses[0],
        "digest": hosts.parties.experiment.hex(),
        "pinned": {"coordinator": PINS.coordinator, "helper": PINS.helper},
        "start": hosts.parties.clock.now * 1000,
    }


def exported(hosts: World, **changes: Any) -> str:
    """Another device's export about the same terms, but for what is changed."""
    document = json.loads(Ledger(":memory:").export())
    entry = {
        "terms": [hosts.parties.experiment.hex()],
        "keys": [],
        "epsilon": "1",
        "participations": 2,
        "withdrawn": False,
        "rounds": [],
    }
    return json.dumps(document | {"experiments": [entry | changes]})


@pytest.mark.parametrize("name", ["epsilon", "participations"])
def test_the_smallest_limit_ever_shown_applies_whatever_is_imported(name: str) -> None:
    """The terms say ε = 1 and two participations; each limit falls and never rises again."""
    values: dict[str, tuple[str | int, ...]] = {
        "epsilon": ("100", "1/2", "3/4", "1/3"),
        "participations": (100, 1, 2, 0),
    }
    expected: dict[str, list[tuple[str, int]]] = {
        "epsilon": [("1", 2), ("1", 2), ("1/2", 2), ("1/2", 2), ("1/3", 2)],
        "participations": [("1", 2), ("1", 2), ("1", 1), ("1", 1), ("1", 0)],
    }
    with world() as hosts:
        exports = [exported(hosts, **{name: value}) for value in values[name]]
        found = node("imports", opening(hosts) | {"exports": exports})
    assert [(one["limit"], one["participations"]) for one in found] == expected[name]


def test_a_browser_device_names_the_invalid_argument_on_opening() -> None:
    with world() as hosts:
        keys = opening(hosts)
        pinned = {"pinned": keys["pinned"]}
        limits: list[Any] = [2, "1/2", "two", 0.5, None]
        options = [{}, *(pinned | {"limit": limit} for limit in limits)]
        found = node("opened", keys | {"options": options})
        silent = node("opened", keys | {"address": "http://127.0.0.1:1", "options": [pinned]})
    other = ["Refused", "keys", "the terms name other keys than pinned"]
    wrong = [["Refused", "limit", f"{one} is no fraction such as 3/2"] for one in ("two", 0.5)]
    assert found == [other, "2", "1/2", *wrong, "8"]
    said = "the coordinator does not answer; try again later"
    assert silent == [["Offline", None, said]]


def participations(exported: str) -> set[tuple[str, str]]:
    """Names of rounds and reports in an export; each has a cost of 1/2."""
    (entry,) = json.loads(exported)["experiments"]
    assert all((one["cost"], one["charged"]) == ("1/2", True) for one in entry["rounds"])
    names = [(one["round"], one["report"]) for one in entry["rounds"]]
    assert len(set(names)) == len(names)
    return set(names)


def test_reports_of_two_devices_in_one_round_count_twice_in_browser_and_python() -> None:
    """The same participation from two exports counts once."""
    third = {"round": "07" * 16, "report": "09" * 16, "cost": "1/2", "charged": True}
    with world() as hosts:
        hosts.parties.open()
        more = [exported(hosts, rounds=[third | {"refused": False}])]
        found = node("together", opening(hosts) | {"more": more})
    assert len(set(found["rounds"])) == 1
    assert found["again"] == "sent"
    one, other = (participations(text) for text in found["exports"])
    assert len(one) == len(other) == 1
    everything = one | other | {("07" * 16, "09" * 16)}
    assert len(everything) == 3
    assert [(each["spent"], each["taken"]) for each in found["spending"]] == [("3/2", 3)] * 3
    assert [participations(text) for text in found["merged"]] == [everything] * 3
    ledger = Ledger(":memory:")
    for text in (*found["exports"], *more, *found["merged"]):
        ledger.merge(text)
    assert ledger.spent == Fraction(3, 2)
    assert participations(ledger.export()) == everything


def test_invitations_are_presented_as_in_python() -> None:
    made = invitations.make(bytes(32), Ed25519PrivateKey.from_private_bytes(bytes(32)), 20)
    shown = node("shownInvitations", {"invitations": made})
    assert shown == [without_secret(one) for one in made]


def test_malformed_invitations_are_sent_to_no_server() -> None:
    (made,) = invitations.make(bytes(32), Ed25519PrivateKey.from_private_bytes(bytes(32)), 1)
    malformed = [f"{made} ", f" {made}", f"{made}=", "made-up", "x" * 106, "?" * 107]
    told = node("shownInvitations", {"invitations": malformed})
    assert told == [None] * len(malformed)
    with world() as hosts:
        hosts.parties.open()
        found = node("invited", opening(hosts) | {"invitations": [*malformed, made]})
        places = [body for body in hosts.parties.bodies if body.startswith(b"{")]
    assert found[:-1] == ["invitation"] * len(malformed)
    assert [json.loads(body)["invitation"] for body in places] == [without_secret(made)]


def test_an_answer_goes_to_the_latest_round_even_if_older_ones_are_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with world() as hosts:
        parties = hosts.parties
        parties.open()
        asked = opening(hosts)
        replies = [parties._assigned()]
        parties.clock.now += 500  # the first round is over, and no tick has noticed it
        parties.open()
        replies.append(parties._assigned())
        monkeypatch.setattr(parties, "_assigned", iter(replies).__next__)
        first, second, recorded = node("later", asked | {"answer": 1, "seconds": 500})
    assert first["round"] != second["round"] == recorded["round"]
    assert (second["recorded"], recorded["recorded"]) == (None, "1")


def test_a_round_with_a_cost_that_no_export_can_state_is_rejected() -> None:
    parties = Parties()
    description, plain = parties.describe().encode(), pack_fraction(terms().noise.scale)
    assert description.count(plain) == 1
    rounds, costs = [], list[str | None]()
    for scale in (Fraction(2**208 - 1, 2**207 - 1), Fraction(2**208 + 1, 2**207)):
        whole = description.replace(plain, pack_fraction(scale))
        announcement = whole + b"".join(endorse(whole, key) for key in KEYS[:2])
        try:
            costs.append(str(parties.pinned.check(accept_round(parties, announcement).offer())))
        except Rejected:
            costs.append(None)
        about = {"terms": terms().encode().decode(), "announcement": announcement.hex()}
        rounds.append(about | {"now": parties.clock.now})
    assert costs[0] is not None
    assert costs[1] is None
    assert node("verdicts", {"rounds": rounds})["costs"] == costs


def accept_round(parties: Parties, announcement: bytes) -> TwoServerRound:
    return accept(TwoServerRound, parties.pinned, announcement)


def test_a_device_reports_from_node_with_a_storage_of_its_own() -> None:
    with world() as hosts:
        hosts.parties.open()
        states = node("participate", opening(hosts) | {"answer": 1})
        stages = [state["stage"] for state in states]
        assert stages == ["fresh", "waiting", "waiting", "waiting", "sent"]
        digests = [half["digest"] for half in states[-1]["sent"]]
        bodies = [body for body in hosts.parties.bodies if body.startswith(b"ta")]
        assert sorted(hashlib.sha256(body).hexdigest() for body in bodies) == sorted(digests)


def test_a_reply_in_many_parts_is_copied_once() -> None:
    """Every part copied all before it: a server that sends few bytes at a time hung the page."""
    parts, size = 300, 100
    pins = {"coordinator": "cd" * 32}
    asked = {"address": "http://a.example", "digest": "ab" * 32, "pinned": pins}
    assert node("copied", asked | {"parts": parts, "size": size}) < 2 * parts * size


def imported(source: bytes) -> list[str]:
    """What a module imports, all of it on demand."""
    assert not re.search(rb"^import|import [{*]", source, re.MULTILINE)
    return re.findall(r"""import\("(.*?)"\)""", source.decode())


def test_the_module_is_small_and_loads_trust_models_and_proofs_only_where_needed() -> None:
    source = (CLIENT / "tacit.js").read_bytes()
    assert len(gzip.compress(source, 9)) < 12_288
    assert imported(source) == [
        "./two-servers.js",
        "./shuffler.js",
        "./local.js",
        "./hpke.js",
        "./moments.js",
        "./contextual.js",
        "./copies.js",
    ]
    assert imported((CLIENT / "two-servers.js").read_bytes()) == ["./prio3.js"]
    alone = ("shuffler", "local", "hpke", "contextual", "moments", "prio3", "copies")
    for name in (f"{one}.js" for one in alone):
        assert imported((CLIENT / name).read_bytes()) == []
    assert "dependencies" not in (CLIENT / "package.json").read_text(encoding="utf-8")
