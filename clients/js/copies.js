// Copies of the ledger of tacit.js for other devices: what was spent, in the format of the device in Python.

const FORMAT = "tacit ledger 3";

export default ({ must, hex, unhex, given, amount, ownOf, lower, united, holder, grouped }) => ({
  exported(ledger) {
    const experiments = ledger.entries.map(({ terms, keys, epsilon, participations, withdrawn, rounds }) => ({
      terms: Object.keys(terms), keys, epsilon, participations, withdrawn: !!withdrawn,
      rounds: Object.entries(rounds).map(([report, { identity, cost, charged, outcome }]) => (
        { round: identity, report, cost, charged: charged || !outcome, refused: outcome === "refused" }
      )),
    }));
    return JSON.stringify({ format: FORMAT, own_limit: ownOf(ledger), experiments, parties: grouped(ledger.entries) }, null, 1);
  },

  merge(ledger, text) {
    const name = (value) => hex(unhex(value, "export"));
    const { format, own_limit: own, experiments } = JSON.parse(text);
    must(format === FORMAT, "export", `format is ${format}, not ${FORMAT}; use the same version on both devices`);
    ledger.own = lower(given(own), ownOf(ledger));
    for (const { terms, keys, epsilon, participations, withdrawn, rounds } of experiments) {
      must(Number.isInteger(participations) && participations >= 0, "export", `participations ${participations}`);
      const entry = united(ledger, terms.map(name), amount(epsilon), participations, keys.map(name));
      entry.withdrawn ||= !!withdrawn;
      for (const { round, report, cost, charged, refused } of rounds) {
        must(name(report).length === 32, "export", `report ${report}`);
        const { rounds } = holder(ledger, name(report)) ?? entry;
        const known = (rounds[name(report)] ??= { identity: name(round), cost: amount(cost), charged: !!charged, outcome: refused ? "refused" : "elsewhere", posts: [] });
        known.charged ||= !!charged && known.outcome !== "refused";
      }
    }
  },
});
