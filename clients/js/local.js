// Trust model "local" of tacit.js: the device adds all of the noise, drawn exactly, and encrypts the result to the one server.
// Coins and draws are those of tacit.sampling (Canonne, Kamath & Steinke 2020): integers only, from the browser's cryptographic randomness.

const fresh = () => crypto.getRandomValues(new BigUint64Array(1))[0];
const length = (value) => (value ? BigInt(value.toString(2).length) : 0n);
const up = (top, bottom) => (top + bottom - 1n) / bottom;
const WORD = 64n;

/** Integers low <= e^-rate · 2^bits <= high with high - low at most 2, for a rate [top, bottom] of at least 0. */
export function expBounds([top, bottom], bits) {
  const halvings = top > bottom ? length(up(top, bottom) - 1n) : 0n;
  const guard = bits + halvings + 32n;
  const divisor = bottom << halvings;
  let [low, high, termLow, termHigh] = Array(4).fill(1n << guard);
  for (let step = 1n; termHigh > 1n; step++) {
    termLow = (termLow * top) / (divisor * step);
    termHigh = up(termHigh * top, divisor * step);
    [low, high] = step % 2n ? [low - termHigh, high - termLow] : [low + termLow, high + termHigh];
  }
  [low, high] = [low - 1n, high + 1n]; // the rest of the series is below its first omitted term, which is at most 1
  for (let n = 0n; n < halvings; n++) [low, high] = [(low * low) >> guard, up(high * high, 1n << guard)];
  const excess = guard - bits;
  const [least, most] = [low >> excess, up(high, 1n << excess)];
  return [least > 0n ? least : 0n, most < 1n << bits ? most : 1n << bits];
}

/** Exact coins and noise from a source of uniform words of 64 bits. */
export function sampler(word = fresh) {
  function bits(count) {
    if (count <= WORD) return count ? word() >> (WORD - count) : 0n;
    const rest = bits(count - WORD);
    return (rest << WORD) | word();
  }

  function below(bound) {
    for (;;) {
      const value = bits(length(bound - 1n));
      if (value < bound) return value;
    }
  }

  /** True with probability e^-rate: digits of a uniform number are compared until they differ. */
  function flip(rate) {
    for (let size = WORD, drawn = word(); ; size += WORD, drawn = (drawn << WORD) | word()) {
      const [low, high] = expBounds(rate, size + 1n);
      if (drawn < low / 2n) return true;
      if (drawn >= up(high, 2n)) return false;
    }
  }

  /** The same for a rate that is used once (CKS20 Algorithm 1). */
  function flipOnce([top, bottom]) {
    for (let n = 0n; n < top / bottom; n++) if (!flip([1n, 1n])) return false;
    let step = 1n;
    while (below(bottom * step) < top % bottom) step++;
    return step % 2n === 1n;
  }

  return {
    /** One draw of discrete Laplace noise of scale top/bottom (CKS20 Algorithm 2). */
    laplace([top, bottom]) {
      for (;;) {
        const remainder = below(top);
        if (!flipOnce(lowest(remainder, top))) continue;
        let whole = 0n;
        while (flip([1n, 1n])) whole++;
        const magnitude = (remainder + top * whole) / bottom;
        const negative = bits(1n);
        if (magnitude || !negative) return negative ? -magnitude : magnitude;
      }
    },
    /** Whether randomized response flips a bit: with probability 1 / (1 + e^epsilon). */
    response(epsilon) {
      while (!(word() < 1n << (WORD - 1n))) if (flip(epsilon)) return true;
      return false;
    },
  };
}

const divisor = (a, b) => (b ? divisor(b, a % b) : a);
const lowest = (top, bottom) => [top / divisor(top, bottom), bottom / divisor(top, bottom)];

export default ({ must, unhex, utf8, concat, digits, numberSize, ratio, above, parse, spell, isKey, isPure, seal }) => {
  const BODY = { assignedUntil: 8, grace: 4, places: 4, minimum: 4, length: 4, room: 4, suite: 1, key: 32, divisor: 4 };
  const RESPONSE = "randomized-response";

  const stated = () => ({
    assumptions: ['[{"id":"honest-device"}]'],
    by: ["devices"], distribution: ["discrete-laplace", RESPONSE], parties: ["coordinator"], proofs: [0], view: ["message"],
  });
  const sound = (terms) => isPure(terms) && fits(terms);
  const fits = ({ noise, answer, no_show }) => no_show === "0" && (noise.distribution !== RESPONSE || answer.levels === 1);

  function read({ fraction, fields }, front) {
    must(front.kind === 0x74610240, "round", "this is no round of the local model");
    const round = { ...front, ...fields(BODY) };
    must(round.suite === 3, "suite", `the round's suite, ${round.suite}, is not what the terms promise`);
    must(isKey(round.key), "keys", "the key of the round is malformed");
    return { ...round, scale: fraction() };
  }

  const span = ({ levels, room }) => BigInt(levels) + 2n * BigInt(room) + 1n;
  const checks = (terms, round) => [
    ["noise", round.divisor === 1 && !above(terms.noise.minimum.map(BigInt), round.scale) && round.scale[1] < 1n << 1000n, spell(round.scale)],
    ["length", round.room < 2 ** 31 && round.length * numberSize(span(round)) < 2 ** 30, round.length],
  ];

  const cost = ({ guarantee }) => {
    const [top, bottom] = parse(guarantee.epsilon);
    return ratio(top, bottom * BigInt(guarantee.participations));
  };

  /** Noise is drawn before the levels are read. */
  async function encode(terms, round, place, levels, word) {
    const { length, room, scale, context, key, identity } = round;
    const { laplace, response } = sampler(word);
    const noise = Array.from({ length }, () => (terms.noise.distribution === RESPONSE ? BigInt(response([scale[1], scale[0]])) : laplace(scale)));
    must(levels.length === length && levels.every((value) => Number.isInteger(value) && value >= 0 && value <= round.levels), "answer", "the values are not levels of the terms");
    const noisy = levels.map((level, metric) => (terms.noise.distribution === RESPONSE ? BigInt(level) ^ noise[metric] : BigInt(level) + noise[metric]));
    const most = span(round) - 1n;
    const within = (value) => (value < 0n ? 0n : value > most ? most : value);
    const content = concat(...noisy.map((value) => digits(within(value + BigInt(room)), numberSize(span(round)))));
    const number = digits(place.number, 4);
    const sealed = await seal(unhex(key), concat(utf8("tacit local v3"), context, number), content);
    return [concat(unhex(`74610241${identity}`), number, place.token, sealed)];
  }

  return { stated, sound, read, checks, cost, encode };
};
