"""Commands for the parties of live experiments, their terms, and invitations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tacit.cli.operating import (
    Url,
    address_of,
    confirm,
    keys_of,
    load_config,
    local_url,
    needs_live,
    print_keys,
    print_lines,
    write_new,
)
from tacit.cli.options import Json, Whole, argument, option
from tacit.cli.printing import print_json, print_sentence
from tacit.cli.serving import ServerRole
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.service.admin import Published
    from tacit.service.bootstrap import Card


# Terms


def show(
    source: Annotated[
        str, argument("URL of a party (with /experiments/… if it has several), or a file.")
    ],
    as_json: Json = False,
) -> None:
    """Show terms in plain language, with their digest and the fingerprints of both keys.

    Example: tacit terms show http://127.0.0.1:8700
    """
    published = _published(source)
    published.check()
    if as_json:
        from tacit.service.stated import stated_guarantee
        from tacit.terms import in_words

        words, guarantee = in_words(published.terms), stated_guarantee(published.terms)
        record = {
            "digest": published.terms.digest.hex(),
            "signed": published.signed,
            "state": published.state or None,
            **keys_of(published),
            "words": words,
            "guarantee": None if guarantee is None else guarantee.to_dict(),
        }
        print_json(record)
        return
    _print_terms(published)


def sign(
    source: Annotated[
        str, argument("URL of the coordinator (with /experiments/… if it has several).")
    ],
    config: Annotated[Path, option("The helper's party.toml.")] = Path("party.toml"),
    url: Annotated[
        str | None, option("URL of the helper, if it differs from where it listens.")
    ] = None,
    yes: Annotated[
        bool, option("Sign without asking; the terms were read before.", "--yes")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read the terms of an experiment and sign them with the helper's key; then it starts.

    Example: tacit terms cosign http://127.0.0.1:8700 --config helper/party.toml
    """
    with needs_live():
        from tacit.records import RecordDirectory
        from tacit.service.admin import PartyClient, Published
        from tacit.terms import approve_successor, check_live, cosign
    settings = load_config(config, "helper")
    published = _published(source)
    terms = published.terms
    check_live(terms)
    key = settings.key_for(terms)
    if terms.parties[1].address != settings.address:
        raise TacitError(
            f"the terms name the helper at {terms.parties[1].address}, but {config} has address "
            f"{settings.address}: correct one of the two"
        )
    if not as_json:
        _print_terms(published)
    if not (yes or confirm("Sign these terms?")):
        raise TacitError("the terms were not signed: answer yes, or give --yes")
    coordinator = PartyClient(_base(source))
    helper = PartyClient(address_of(settings, url), settings.admin_token)
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
        mine = settings.key_for(old)
        records = RecordDirectory(settings.records, used=True)
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
    print_sentence("signed", f"by the helper; the experiment is {state}")
    print_sentence("next", f"tacit doctor {terms.parties[0].address} --config {config}")


def _published(source: str) -> Published:
    with needs_live():
        from tacit.service.admin import PartyClient, Published
        from tacit.terms import Terms
    if "://" in source:
        party = PartyClient(_base(source))
        return party.terms(party.experiment(_digest_in(source)))
    try:
        return Published(Terms.decode(Path(source).read_bytes().strip()), ())
    except OSError as problem:
        raise TacitError(
            f"{source} cannot be read ({problem.strerror}): give a URL such as "
            "https://coordinator.example, or a file with the text of the terms"
        ) from None


def _base(source: str) -> str:
    return source.partition("/experiments")[0].rstrip("/")


def _digest_in(source: str) -> str | None:
    return source.partition("/experiments/")[2].partition("/")[0] or None


def _print_terms(published: Published) -> None:
    from tacit.terms import in_words

    print("The terms")
    print_lines(in_words(published.terms))
    print_sentence("digest", published.terms.digest.hex())
    print_keys(published)
    state = f" ({published.state})" if published.state else ""
    print_sentence(
        "signed", f"{'by both parties' if published.signed else 'not by both parties yet'}{state}"
    )


# Parties


def found(
    role: Annotated[ServerRole, argument("Which of the two servers.")],
    directory: Annotated[Path, argument("New directory for its files.")],
    address: Annotated[str | None, option("Public URL, which the terms name: https://…")] = None,
    listen: Annotated[
        str | None, option("host:port to listen on; behind a proxy a local one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create a party: key, lock, admin token, configuration, and a card for the other operator.

    Example: tacit party new helper helper --address https://helper.example
    """
    with needs_live():
        from tacit.service import bootstrap
    card = bootstrap.create_party(role.value, directory, address, listen)
    config = directory / "party.toml"
    commands = _next_commands(card, config)
    if as_json:
        print_json(_card(card) | {"config": str(config), "next": commands})
        return
    print_sentence("created", f"{config}, with its key, lock and admin token beside it")
    _print_card(card, directory)
    print_sentence(
        "next", "run these; the first keeps running, so use another terminal for the others:"
    )
    for one in commands:
        print(f"  {one}")


def _next_commands(card: Card, config: Path) -> list[str]:
    """The next three commands of the operator of a new party."""
    serve = f"tacit serve {card.role} --config {config}"
    if card.role == "helper":
        url = "https://coordinator.example"
        cosign = f"tacit terms cosign {url} --config {config}"
        return [serve, cosign, f"tacit doctor {card.address} --config {config}"]
    return [
        serve,
        "tacit experiment new experiment.toml --helper helper/card.toml",
        f"tacit experiment create experiment.toml --config {config}",
    ]


def _card(card: Card) -> dict[str, str]:
    key = {"key": card.key.hex(), "fingerprint": card.fingerprint}
    return {"role": card.role, "address": card.address, **key}


def _print_card(card: Card, directory: Path) -> None:
    for name in ("address", "key", "fingerprint"):
        print_sentence(name, _card(card)[name])
    print_sentence("for the other operator", str(directory / "card.toml"))


def rotate(
    config: Annotated[Path, option("The party's party.toml.")] = Path("party.toml"),
    as_json: Json = False,
) -> None:
    """Replace the long-term key of a party; the old key is kept for running experiments.

    Example: tacit party rotate --config helper/party.toml
    """
    with needs_live():
        from tacit.service import bootstrap
        from tacit.service.config import load
    card, kept = bootstrap.rotate(load(config), config.parent)
    if as_json:
        print_json(_card(card) | {"kept": str(kept)})
        return
    _print_card(card, config.parent)
    print_sentence("old key kept", f"{kept}, for experiments whose terms name it")
    print_sentence(
        "next", f"restart the {card.role}, and publish successor terms that name this key"
    )


def make(
    count: Annotated[int, argument("Number of invitations.", **Whole)],
    config: Annotated[
        Path, option("The party.toml whose key the terms name as issuer; also another's.")
    ] = Path("party.toml"),
    experiment: Annotated[
        str | None, option("First digits of the digest; optional if there is only one.")
    ] = None,
    out: Annotated[Path | None, option("New file for them, one per line.")] = None,
    url: Url = None,
    issuer: Annotated[
        Path | None, option("Directory of an issuer's key; --config is not read then.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Create invitations for an experiment with admission by invitation; each is valid once.

    Example: tacit invitations make 100 --config coordinator/party.toml --out invitations.txt
    """
    with needs_live():
        from tacit.service import invitations, issuers
        from tacit.service.admin import PartyClient
        from tacit.service.config import load
    settings = load(config) if issuer is None else None
    own = local_url(settings) if settings is not None and settings.role == "coordinator" else None
    if url is None and own is None:
        raise TacitError(
            f"{issuer or config} is not the coordinator's: give the coordinator's address with "
            "--url"
        )
    party = PartyClient(url or own or "")
    terms = party.terms(party.experiment(experiment)).terms
    if terms.admission != "invitation":
        raise TacitError(
            "admission to this experiment is open, without invitations: define one with "
            'people.admission = "invitation"'
        )
    if settings is not None:
        secret = settings.issuer_key(terms)
    else:
        assert issuer is not None
        secret = issuers.issuer_secret(issuer, terms.issuer)
    made = invitations.make(party.first(terms), secret, count)
    if out is not None:
        write_new(out, "\n".join(made) + "\n", mode=0o600)
    if as_json:
        print_json({"invitations": made} if out is None else {"file": str(out), "count": count})
    elif out is None:
        print("\n".join(made))
    else:
        print_sentence("written", f"{count} invitations to {out} (mode 600)")


def issue(
    directory: Annotated[Path, argument("New directory for the key and its card.")],
    as_json: Json = False,
) -> None:
    """Create the key of an issuer, who signs invitations and runs no server.

    Example: tacit invitations issuer issuer
    """
    with needs_live():
        from tacit.service import issuers
        from tacit.signatures import fingerprint
    key = issuers.create_issuer(directory)
    card = directory / issuers.CARD
    if as_json:
        print_json({"key": key.hex(), "fingerprint": fingerprint(key), "card": str(card)})
        return
    print_sentence("key", key.hex())
    print_sentence("fingerprint", fingerprint(key))
    print_sentence("for the coordinator's operator", str(card))
    print_sentence(
        "next",
        f"once they have published: tacit invitations make 100 --issuer {directory} --url "
        "https://coordinator.example --out invitations.txt",
    )
