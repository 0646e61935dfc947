// Trust model "shuffler" of tacit.js: noisy bits, each encrypted to the analyzer, all together to the shuffler (TKMS21).
// Additive shares, which need invitations, are not supported.

export default ({ must, unhex, utf8, concat, digits, uniform, numberSize, ratio, above, parse, spell, isKey, seal }) => {
  const BODY = { assignedUntil: 8, grace: 4, places: 4, minimum: 4, size: 4, messages: 4, length: 4, suite: 1, divisor: 4 };
  const KEYS = { line1: 32, key1: 32, line0: 32, key0: 32 }; // of the shuffler, then of the analyzer
  const [SLACK, MOST_TERMS] = [1e-9, 2 ** 22];
  const MOST_MESSAGES = 2 ** 15; // of a report: a device encrypts each

  const part = (places, fraction) => ((pair) => Number((BigInt(places) * pair[0]) / pair[1]))(parse(fraction));
  const within = (text) => (([top, bottom]) => top >= 0n && top < bottom)(parse(text));
  const less = (text) => (([top, bottom]) => spell(ratio(bottom - top, bottom)))(parse(text)); // 1 - fraction

  const stated = ({ guarantee, aggregation: { dishonest_count: count, dishonest_fraction: fraction, missing_fraction: missing } }) => ({
    assumptions: [
      `[{"id":"bounded-adversary"},{"count":${count},"fraction":"${fraction}","id":"dishonest-at-most","scope":"round"},` +
        `${guarantee.participations > 1 ? '{"id":"distinct-rounds"},' : ""}{"id":"non-colluding-shuffler"},{"fraction":"${less(missing)}","id":"released-only-above"}]`,
    ],
    by: ["devices"], distribution: ["binomial"], parties: ["analyzer,shuffler"], proofs: [0], view: ["shuffled"],
  });

  const sound = ({ aggregation, guarantee, no_show, issuer, parties }) =>
    within(aggregation.dishonest_fraction) && within(aggregation.missing_fraction) && within(guarantee.delta) && guarantee.delta !== "0" &&
    no_show === "0" && !parties.some((party) => party.key === issuer);

  function read({ integer, fraction, fields }, front) {
    must(front.kind === 0x74610230, "round", "this is no round of a shuffler");
    const round = { ...front, ...fields(BODY) };
    must(round.suite === 3, "suite", `the round's suite, ${round.suite}, is not what the terms promise`);
    Object.assign(round, { scale: fraction() }, fields(KEYS), { modulus: integer() });
    const { key0, key1, line0, line1 } = round;
    must(key0 !== key1 && line0 !== line1 && isKey(key0) && isKey(key1), "keys", "a key of the round is malformed or there twice");
    return round;
  }

  /** The larger hockey-stick divergence of the number of ones among `bits` bits when it moves by `shift`. */
  function binomialDelta(bits, bias, shift, epsilon) {
    const mean = bits * bias;
    const reach = Math.ceil(15 * Math.sqrt(mean * (1 - bias))) + 100;
    const [low, mode, high] = [Math.max(0, Math.floor(mean) - reach), Math.floor(mean), Math.min(bits, Math.ceil(mean) + reach)];
    if (high - low + shift > MOST_TERMS) return 1;
    const odds = bias / (1 - bias);
    const weights = new Float64Array(high - low + 1);
    weights[mode - low] = 1;
    for (let x = mode; x < high; x++) weights[x + 1 - low] = (weights[x - low] * odds * (bits - x)) / (x + 1);
    for (let x = mode; x > low; x--) weights[x - 1 - low] = (weights[x - low] * x) / (odds * (bits - x + 1));
    const total = weights.reduce((sum, weight) => sum + weight);
    const factor = Math.exp(Math.min(epsilon, 700));
    const at = (place) => weights[place] ?? 0;
    let [one, other] = [0, 0];
    for (let place = 0; place < weights.length + shift; place++) {
      one += Math.max(0, at(place) - factor * at(place - shift));
      other += Math.max(0, at(place - shift) - factor * at(place));
    }
    return Math.max(one, other) / total;
  }

  /** Noise bits of the reports that are certain to be there and honest, and whether they earn the guarantee. */
  function earns({ aggregation, guarantee, noise, answer }, { places, minimum, divisor, messages, length, levels, scale: [top, bottom] }) {
    const missing = part(places, aggregation.missing_fraction);
    const dishonest = Math.min(Math.max(aggregation.dishonest_count, part(places, aggregation.dishonest_fraction)), places - 1);
    const bits = messages / length - levels;
    if (minimum < places - missing || divisor < 1 || divisor > Math.min(minimum, places) - dishonest || !(Number.isInteger(bits) && bits >= 1) || top >= bottom) return false;
    const each = guarantee.participations * answer.metrics.length;
    const number = (text) => (([a, b]) => Number((a * 10n ** 40n) / b) / 1e40)(parse(text));
    const variance = ratio(BigInt(divisor) * BigInt(bits) * top * (bottom - top), bottom * bottom);
    const delta = binomialDelta(divisor * bits, Number((top * 10n ** 40n) / bottom) / 1e40, levels, number(guarantee.epsilon) / each);
    return !above(noise.minimum.map(BigInt), variance) && delta <= (number(guarantee.delta) / each) * (1 + SLACK);
  }

  const checks = (terms, round) => [
    ["messages", round.modulus === 2n && round.messages && round.messages <= MOST_MESSAGES && round.messages % round.length === 0, round.messages],
    ["size", round.size === numberSize(2n * BigInt(round.length)) && round.places * round.messages * (64 + round.size) < 2 ** 30, round.size],
    ["noise", earns(terms, round), spell(round.scale)],
  ];

  const INVENTED = "a coordinator could invent all other participants: join only if the participant accepts that, with accept.obedientCoordinator";

  /** An equal part of ε. A device that is about to join says what its participant accepts. */
  function cost({ guarantee, admission }, _scale, accept) {
    must(!accept || admission === "invitation" || accept.obedientCoordinator, "admission", INVENTED);
    const [top, bottom] = parse(guarantee.epsilon);
    return ratio(top, bottom * BigInt(guarantee.participations));
  }

  /** The bits of all metrics, with their labels. Noise is drawn before the levels are read. */
  function randomized({ length, messages, scale: [top, bottom], ...round }, levels, draw) {
    const parts = messages / length;
    const ones = Array.from({ length }, () => Array.from({ length: parts - round.levels }, () => uniform(bottom, draw) < top).filter(Boolean).length);
    must(levels.length === length && levels.every((value) => Number.isInteger(value) && value >= 0 && value <= round.levels), "answer", "the values are not levels of the terms");
    return levels.flatMap((level, metric) => Array.from({ length: parts }, (_, at) => 2 * metric + (at < level + ones[metric] ? 1 : 0)));
  }

  async function encode(terms, round, place, levels, draw = (size) => crypto.getRandomValues(new Uint8Array(size))) {
    const { size, context, key0, key1, identity } = round;
    const inner = await Promise.all(randomized(round, levels, draw).map((bit) => seal(unhex(key0), concat(utf8("tacit mixing message v2"), context), concat(draw(16), digits(bit, size)))));
    const outer = await seal(unhex(key1), concat(utf8("tacit mixing wrap v2"), context), concat(...inner));
    return [null, concat(digits(place.number, 4), place.token, unhex(`74610231${identity}`), outer)];
  }

  return { stated, sound, read, checks, cost, encode, randomized, binomialDelta };
};
