"""The coordinator's side of one attempt to aggregate a row: all stages of masking over an exchange.

Between masking and revealing, all survivors sign who survived (`tacit.silos.silo_masking`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.announcements import Binding, announce
from tacit.aggregation.interface import SumView, new_identity
from tacit.aggregation.masking import ADDRESS_SIZE, MaskingRound
from tacit.aggregation.masking_server import MaskingServer, MaskingStage, prepare_server
from tacit.aggregation.wire import pack_parts, unpack_parts
from tacit.errors import Rejected, TacitError, require
from tacit.protocols.prefix_messages import MODULUS_BITS
from tacit.records import Records
from tacit.signatures import SIGNATURE_SIZE, Signed, verify
from tacit.silos.exchange import LOG
from tacit.silos.federation import PinnedFederation
from tacit.silos.messages import SyncStage, pack_survivors
from tacit.silos.silo_masking import KEYS_SIZE

Ask = Callable[[SyncStage, Mapping[int, bytes], int, bytes], Mapping[int, bytes]]


class MaskingAttempt:
    """One attempt at one row; every message is about it and no other."""

    def __init__(
        self, pinned: PinnedFederation, key: Ed25519PrivateKey, records: Records, step: int
    ) -> None:
        terms, derived = pinned.terms, pinned.derived
        self._terms, self.step, self.identity = terms, step, new_identity()
        count = len(terms.silos)
        self.server = MaskingServer(
            MaskingRound(
                Binding(terms.digest, option=step),
                self.identity,
                count,
                count - terms.missing,
                1 << MODULUS_BITS,
                derived.sums.size,
                terms.neighbourhood,
                prepare_server(records, self.identity),
                derived.noise,
            ),
            records,
        )
        signature = self.server.endorse(pinned, key)
        self._announcement = announce(self.server.round.encode(), [signature])
        self._cards: dict[int, bytes] = {}

    def run(self, ask: Ask) -> SumView:
        """Run all stages; raise `Rejected` if too few silos answer."""
        outgoing = self._join(ask)
        cards = [self._cards.get(number, b"") for number in range(len(self._terms.silos))]
        setups = {number: pack_parts([setup, *cards]) for number, setup in outgoing.items()}
        outgoing = self._stage(ask, SyncStage.SHARE, setups)
        outgoing = self._stage(ask, SyncStage.CHECK, outgoing)
        outgoing = self._stage(ask, SyncStage.MASK, outgoing)
        signatures = self._agree(ask, sorted(outgoing))
        while self.server.stage is not MaskingStage.RELEASED:
            asked = {number: pack_parts([one, *signatures]) for number, one in outgoing.items()}
            outgoing = self._stage(ask, SyncStage.REVEAL, asked)
        return self.server.view()

    def _join(self, ask: Ask) -> dict[int, bytes]:
        everybody = dict.fromkeys(range(len(self._terms.silos)), self._announcement)
        context = self.server.round.context
        for number, answer in ask(SyncStage.JOIN, everybody, self.step, self.identity).items():
            silo = self._terms.silos[number]
            try:
                joining, card = _pair(answer)
                keys, signature = card[:KEYS_SIZE], card[KEYS_SIZE:]
                verify(Signed.SILO_KEYS, context + keys, signature, silo.key, silo.name)
                self.server.take(joining, keys)
            except TacitError as problem:
                LOG.warning("JOIN of %s is rejected: %s", silo.name, problem)
            else:
                self._cards[number] = card
        return self._addressed(self.server.close())

    def _stage(self, ask: Ask, stage: SyncStage, messages: Mapping[int, bytes]) -> dict[int, bytes]:
        """Ask the silos and close the stage; its outgoing messages. An invalid answer is none."""
        for number, answer in ask(stage, messages, self.step, self.identity).items():
            try:
                self.server.take(answer)
            except Rejected as problem:
                silo = self._terms.silos[number].name
                LOG.warning("%s of %s is rejected: %s", stage.name, silo, problem)
        return self._addressed(self.server.close())

    def _agree(self, ask: Ask, survivors: list[int]) -> list[bytes]:
        """The survivors' signatures; all of them are needed."""
        listed = dict.fromkeys(survivors, pack_survivors(survivors))
        signed = ask(SyncStage.SURVIVORS, listed, self.step, self.identity)
        absent = [self._terms.silos[n].name for n in survivors if n not in signed]
        if absent:
            raise Rejected(f"{', '.join(absent)} did not sign the survivors")
        sizes = {len(one) for one in signed.values()}
        require(sizes == {SIGNATURE_SIZE}, "sizes of signatures", sizes, "64", Rejected)
        return [signed[number] for number in survivors]

    def _addressed(self, messages: Mapping[bytes, bytes]) -> dict[int, bytes]:
        """Messages by address as messages by silo."""
        numbers = {card[:ADDRESS_SIZE]: number for number, card in self._cards.items()}
        return {numbers[address]: message for address, message in messages.items()}


def _pair(answer: bytes) -> tuple[bytes, bytes]:
    parts = unpack_parts(answer)
    fits = len(parts) == 2 and len(parts[1]) == KEYS_SIZE + SIGNATURE_SIZE
    require(fits, "answer to JOIN", f"{len(answer)} bytes long", "two parts", Rejected)
    return parts[0], parts[1]
