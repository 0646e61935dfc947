// The ledger of tacit.js by party, and copies of it for other devices, in the format of the device in Python.

const FORMAT = "tacit ledger 3";

export default ({ must, hex, unhex, given, amount, ownOf, lower, united, holder, above, spell, total, counted }) => {
  // Experiments that share a party's key; the largest total first.
  function grouped(entries) {
    let groups = [];
    for (const entry of entries) {
      const near = groups.filter(({ keys }) => keys.some((key) => entry.keys.includes(key)));
      const members = [...near.flatMap((group) => group.members), entry];
      groups = [...groups.filter((group) => !near.includes(group)), { members, keys: [...new Set(members.flatMap((one) => one.keys))].sort() }];
    }
    const spent = ({ members }) => total(members.flatMap(counted));
    const shown = (group) => ({ keys: group.keys, experiments: group.members.map((one) => Object.keys(one.terms).sort()), spent: spell(spent(group)) });
    return groups.sort((one, other) => (above(spent(other), spent(one)) || (!above(spent(one), spent(other)) && `${one.keys}` > `${other.keys}`) ? 1 : -1)).map(shown);
  }

  return {
    grouped,

    exported(ledger) {
      const experiments = ledger.entries.map(({ terms, keys, epsilon, participations, withdrawn, rounds }) => ({
        terms: Object.keys(terms), keys, epsilon, participations, withdrawn: !!withdrawn,
        rounds: Object.entries(rounds).map(([report, { identity, cost, delta = "0", charged, outcome }]) => (
          { round: identity, report, cost, charged: charged || !outcome, refused: outcome === "refused", ...(delta !== "0" && { delta }) }
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
        for (const { round, report, cost, delta = "0", charged, refused } of rounds) {
          must(name(report).length === 32, "export", `report ${report}`);
          const { rounds } = holder(ledger, name(report)) ?? entry;
          const known = (rounds[name(report)] ??= { identity: name(round), cost: amount(cost), delta: amount(delta), charged: !!charged, outcome: refused ? "refused" : "elsewhere", posts: [] });
          known.charged ||= !!charged && known.outcome !== "refused";
        }
      }
    },
  };
};
