"""Commands for the parties of live experiments, their terms, and invitations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.operating import (
    Url,
    agreed,
    configured,
    guarded,
    keys_of,
    listening,
    needs_live,
    print_lines,
    say_keys,
    write_new,
)
from tacit.cli.options import Json, Whole
from tacit.cli.printing import print_json, sentence
from tacit.cli.serving import ServerRole
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.privacy import Guarantee
    from tacit.service.admin import Published
    from tacit.terms import Terms


# Terms


def show(
    source: Annotated[
        str, typer.Argument(help="A party's address (with /experiments/… if it has several).")
    ],
    as_json: Json = False,
) -> None:
    """Terms in plain words, their digest and the fingerprints of the parties' keys; of a party, or
    of a file with their text.

    Example: tacit terms show http://127.0.0.1:8700
    """
    published = _published(source)
    published.check()
    if as_json:
        from tacit.terms import in_words

        words, promise = in_words(published.terms), _guarantee(published.terms)
        record = {
            "digest": published.terms.digest.hex(),
            "signed": published.signed,
            "state": published.state or None,
            **keys_of(published),
            "words": words,
            "guarantee": None if promise is None else promise.to_dict(),
        }
        print_json(record)
        return
    _say_terms(published)


def _guarantee(terms: Terms) -> Guarantee | None:
    """The guarantee in the terms; None for rehearsals, whose noise is not verified."""
    from tacit.privacy import ApproximateDP, PureDP
    from tacit.terms import REHEARSED

    if terms.noise.distribution == REHEARSED:
        return None
    promise = terms.promise
    about: dict[str, Any] = {
        "view": terms.view,
        "participations": promise.participations,
        "assumptions": terms.assumptions,
    }
    epsilon: Any = promise.epsilon  # a fraction; rounded when printed
    if promise.delta:
        return ApproximateDP(float(epsilon), float(promise.delta), **about)
    return PureDP(epsilon, **about)


def sign(
    source: Annotated[
        str,
        typer.Argument(help="The coordinator's address (with /experiments/… if it has several)."),
    ],
    config: Annotated[Path, typer.Option(help="The helper's party.toml.")] = Path("party.toml"),
    url: Annotated[
        str | None, typer.Option(help="Where the helper is reached, if not where it listens.")
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="The terms were read before; do not ask.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read an experiment's terms, sign them with the helper's key, and let it begin.

    Example: tacit terms cosign http://127.0.0.1:8700 --config helper/party.toml
    """
    with needs_live():
        from tacit.records import RecordDirectory
        from tacit.service.admin import Operated, Published
        from tacit.terms import approve_successor, check_live, cosign
    told = configured(config, "helper")
    published = _published(source)
    terms = published.terms
    check_live(terms)
    key = told.key_for(terms)
    if terms.parties[1].address != told.address:
        raise TacitError(
            f"the terms say that the helper is at {terms.parties[1].address}; {config} says "
            f"{told.address}: one of the two must be mended"
        )
    if not as_json:
        _say_terms(published)
    if not (yes or agreed("Sign these terms?")):
        raise TacitError("nothing was signed: read the terms and answer yes, or give --yes")
    coordinator = Operated(_base(source))
    helper = Operated(guarded(url) if url else listening(told), told.admin_token)
    signature = cosign(terms, key)
    both = (published.signatures[0], signature)
    Published(terms, both).check()
    digest, before = terms.digest.hex(), terms.predecessor.hex()
    taken: dict[str, Any] = {"terms": terms.encode().decode()}
    taken["signatures"] = [one.hex() for one in both]
    brought = {"signature": signature.hex()}
    where = f"/experiments/{digest}/cosignature"
    if before:
        old = helper.terms(before).terms
        mine = told.key_for(old)
        records = RecordDirectory(told.records, used=True)
        approval = approve_successor(old, terms, mine, records)
        coordinator.post(where, brought | {"approval": approval.hex()})
        helper.post("/experiments", taken | {"approvals": coordinator.approvals(before)})
    else:
        helper.post("/experiments", taken)
        coordinator.post(where, brought)
    state = coordinator.terms(digest).state
    if as_json:
        print_json({"digest": digest, "signature": signature.hex(), "state": state})
        return
    sentence("signed", f"the helper takes part, and the coordinator says that it is {state}")


def _published(source: str) -> Published:
    with needs_live():
        from tacit.service.admin import Operated, Published
        from tacit.terms import Terms
    if "://" in source:
        party = Operated(_base(source))
        return party.terms(party.experiment(_named(source)))
    try:
        return Published(Terms.decode(Path(source).read_bytes().strip()), ())
    except OSError as problem:
        raise TacitError(
            f"{source} cannot be read ({problem.strerror}): give an address such as "
            "https://coordinator.example, or a file with the terms' text"
        ) from None


def _base(source: str) -> str:
    return source.partition("/experiments")[0].rstrip("/")


def _named(source: str) -> str | None:
    return source.partition("/experiments/")[2].partition("/")[0] or None


def _say_terms(published: Published) -> None:
    from tacit.terms import in_words

    print("The terms")
    print_lines(in_words(published.terms))
    sentence("digest", published.terms.digest.hex())
    say_keys(published)
    state = f" ({published.state})" if published.state else ""
    sentence(
        "signed", f"{'by both parties' if published.signed else 'not by both parties yet'}{state}"
    )


# Parties


def found(
    role: Annotated[ServerRole, typer.Argument(help="Which of the two servers.")],
    directory: Annotated[Path, typer.Argument(help="A new directory for its files.")],
    address: Annotated[
        str | None, typer.Option(help="What others call it by: https://… ; stands in the terms.")
    ] = None,
    listen: Annotated[
        str | None, typer.Option(help="host:port of the process; behind a proxy, a local one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new party: key, lock, admin token, configuration, and the card to hand out.

    Example: tacit party new helper helper --address https://helper.example
    """
    with needs_live():
        from tacit.service import bootstrap
    card = bootstrap.create_party(role.value, directory, address, listen)
    config = directory / "party.toml"
    if as_json:
        record = {"role": card.role, "address": card.address, "key": card.key.hex()}
        print_json(record | {"fingerprint": card.fingerprint, "config": str(config)})
        return
    sentence("made", f"{config}, with its key, lock and admin token beside it")
    sentence("address", card.address)
    sentence("key", card.key.hex())
    sentence("fingerprint", card.fingerprint)
    sentence("to hand out", str(directory / "card.toml"))
    sentence("next", f"tacit serve {card.role} --config {config}")


def rotate(
    config: Annotated[Path, typer.Option(help="The party's party.toml.")] = Path("party.toml"),
    as_json: Json = False,
) -> None:
    """Give a party a new long-term key; the old one is kept for what runs under it.

    Example: tacit party rotate --config helper/party.toml
    """
    with needs_live():
        from tacit.service import bootstrap
        from tacit.service.config import load
    card, kept = bootstrap.rotate(load(config), config.parent)
    if as_json:
        record = {"role": card.role, "address": card.address, "key": card.key.hex()}
        print_json(record | {"fingerprint": card.fingerprint, "kept": str(kept)})
        return
    sentence("new key", card.key.hex())
    sentence("fingerprint", card.fingerprint)
    sentence("kept", f"{kept}, for experiments whose terms name the old key")
    sentence("to hand out", str(config.parent / "card.toml"))
    sentence("next", f"start the {card.role} again, and publish successor terms that name this key")


def make(
    count: Annotated[int, typer.Argument(help="How many.", **Whole)],
    config: Annotated[Path, typer.Option(help="The coordinator's party.toml.")] = Path(
        "party.toml"
    ),
    experiment: Annotated[
        str | None, typer.Option(help="First digits of its digest; none if there is only one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="A new file for them, one on each line.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Make invitations to an experiment whose admission is by invitation; each counts once.

    Example: tacit invitations make 100 --config coordinator/party.toml --out invitations.txt
    """
    with needs_live():
        from tacit.service import invitations
        from tacit.service.admin import Operated
    told = configured(config, "coordinator")
    party = Operated(url or listening(told))
    terms = party.terms(party.experiment(experiment)).terms
    if terms.admission != "invitation":
        raise TacitError(
            "admission to this experiment is open, so nobody needs an invitation: define one with "
            'people.admission = "invitation"'
        )
    made = invitations.make(party.first(terms), told.issuer_key(terms), count)
    if out is not None:
        write_new(out, "\n".join(made) + "\n", mode=0o600)
    if as_json:
        print_json({"invitations": made} if out is None else {"file": str(out), "count": count})
    elif out is None:
        print("\n".join(made))
    else:
        sentence("written", f"{count} invitations to {out}, which only you can read")
