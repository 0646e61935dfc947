"""Report of a live experiment as one self-contained HTML page.

It is the experimenter's page in its final state, with the messages sent and rejected. It has no
script, sends no request, and supports light and dark mode.
"""

from __future__ import annotations

from tacit.service.demo.play import DemoProgress
from tacit.service.pages import experimenter, sentences, style_sheet
from tacit.trust import TrustModel


def html(progress: DemoProgress) -> str:
    """The whole page."""
    view = _view(progress)
    return experimenter.page(
        view,
        experimenter.parts(view, helper_reachable=True),
        template="demo.html",
        style=style_sheet(),
        sent=sent(progress),
        rejected=rejected(progress),
        seconds=progress.seconds,
    )


def answer(progress: DemoProgress) -> tuple[str, str, str]:
    """The best option, its certainty and the guarantee, in words."""
    view = _view(progress)
    best, sure, promised = (
        f"{said.short}{'' if said.short.endswith('.') else ':'} {said.more}".strip()
        for said in (sentences.best(view), sentences.sure(view), sentences.promised(view))
    )
    return best, sure, promised


def _view(progress: DemoProgress) -> sentences.View:
    return progress.export | {"status": progress.status, "estimates": progress.estimates}


def sent(progress: DemoProgress) -> list[str]:
    """Sentences about the messages sent by devices."""
    counts, trust = progress.counts, TrustModel(progress.export["terms"]["trust"])
    each = counts.sent_bytes / max(counts.sent, 1)
    return [
        f"{counts.came:,} participants came; {counts.asked:,} got a slot, {counts.unasked:,} got "
        "the best option so far and did not report.",
        f"{counts.reported:,} reported, each with {_REPORTS[trust]}: "
        f"{counts.sent:,} messages of {each:.0f} bytes on average, {counts.sent_again:,} of them "
        "sent again because a connection broke.",
        f"{counts.vanished:,} dropped out before they reported; {counts.unreported:,} were late.",
    ]


_REPORTS = {
    TrustModel.TWO_SERVERS: "two encrypted report shares, one per server",
    TrustModel.LOCAL: "one noisy answer",
    TrustModel.SHUFFLER: "encrypted messages to the shuffler",
    TrustModel.SECURE_AGGREGATION: "a masked report",
}


def rejected(progress: DemoProgress) -> list[str]:
    """Sentences about the rejected messages and the aborted rounds."""
    counts = progress.counts
    said = {
        "nonsense": "an encrypted report that is invalid (accepted, and dropped when the round "
        "closed)",
        "another": "a second, different report for the same slot",
        "forged slot": "a report for a slot that was never assigned",
    }
    lines = [f"{counts.malicious:,} participants were malicious."]
    for name, count in sorted(counts.rejected.items()):
        what, _, status = name.partition(": ")
        why = f"{said[what]}: answered {status}" if what in said else name
        lines.append(f"{count:,} times {why.removesuffix('.')}.")
    small = sum(one["stage"] == "refused" for one in progress.status["rounds"])
    lines.append(f"{small:,} {'round' if small == 1 else 'rounds'} had too few reports: aborted.")
    return lines
