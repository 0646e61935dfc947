// Contextual experiments of tacit.js with moments: the device computes features of its participant's context, picks an option by a
// Thompson draw of the round's policy, and reports x (y - 1/2) and the upper triangle of x xᵀ as integers. It wraps two-servers.js.

const BY_POLICY = 0xffff; // in place of a round's option
const UNIT = 2 ** 20; // entries of the terms' feature map are multiples of 1/UNIT
const [FINEST, MOST_FEATURES, MOST_CONTEXTS, MOST_PARTS] = [2 ** 20, 32, 1024, 16];
const [DIAGONAL, OTHER] = [5, 7]; // factors of entries of x xᵀ
const SQUARED = 4.5; // squared sensitivity, relative to the largest number of a report: 2 (1 + w²/8)² with w = 2
const SLACK = 1e-9; // relative excess of a computed δ that is accepted
const ASSUMED = '[{"id":"bounded-adversary"},{"count":1,"id":"honest-servers","of":2},{"id":"pinned-keys"},{"id":"protects","secret":"context-and-rewards"},{"id":"public-membership"}]';

/** The code of a context: 1, categories one-hot, numbers scaled from their bounds to [-1, 1]. */
export function codeOf(fields, context) {
  return fields.reduce((code, { name, values, low, high }) => {
    if (values) return [...code, ...values.map((value) => +(value === `${context[name]}`))];
    const clipped = Math.min(Math.max(+context[name], low), high);
    return [...code, Math.min(Math.max((2 * (clipped - low)) / (high - low) - 1, -1), 1)];
  }, [1]);
}

const dot = (row, code) => row.reduce((sum, number, place) => sum + number * code[place], 0);
const exact = (matrices, code) => matrices.map((matrix) => matrix.map((row) => dot(row, code)));

/** The features of every option in multiples of 1/resolution. */
export const featuresOf = (matrices, resolution, code) => exact(matrices, code).map((vector) => vector.map((number) => Math.floor(number * resolution + 0.5)));

/** The option with the largest prediction, for a drawn root and standard normal numbers. */
export function picked({ mean, roots, paused }, vectors, part, normals) {
  const drawn = mean.map((start, place) => roots[part][place].reduce((sum, factor, at) => sum + factor * normals[at], start));
  let [best, found] = [-1, 0];
  for (const [option, vector] of vectors.entries()) {
    const value = dot(vector, drawn);
    if (!paused.includes(option) && (best < 0 || value > found)) [best, found] = [option, value];
  }
  return best;
}

/** (2 level - levels) x and x_i x_j for i <= j, times these factors. */
export function momentsOf(x, centred, [first, diagonal, other] = [1, 1, 1]) {
  const upper = x.flatMap((a, i) => x.slice(i).map((b, j) => (j ? other : diagonal) * a * b));
  return [...x.map((a) => first * centred * a), ...upper].map((number) => number + 0); // no -0
}

/** The upper tail of a standard normal variable, to a relative 1e-11. */
export function normalTail(x) {
  const y = Math.abs(x) / Math.SQRT2;
  let tail;
  if (y < 2) {
    let [term, sum] = [y, y];
    for (let n = 1; n < 80; n++) sum += (term *= (-y * y) / n) / (2 * n + 1);
    tail = 0.5 - sum / Math.sqrt(Math.PI);
  } else {
    let below = y;
    for (let k = 160; k > 0; k--) below = y + k / 2 / below;
    tail = Math.exp(-y * y) / Math.sqrt(Math.PI) / below / 2;
  }
  return x < 0 ? 1 - tail : tail;
}

/** δ of discrete Gaussian noise in every number of a vector, as `tacit.terms.accounting.vector_delta`. */
export function vectorDelta(sigma, square, numbers, epsilon) {
  const mu = Math.sqrt(square) / sigma;
  if (!(sigma >= 1 && epsilon >= 0 && epsilon <= 64)) return 1;
  const tail = normalTail(epsilon / mu - mu / 2);
  const rounding = 1e-13 * (1 + (epsilon / mu - mu / 2) ** 2 + epsilon); // both terms cancel at very small ε
  const mechanism = tail - Math.exp(epsilon) * normalTail(epsilon / mu + mu / 2) + rounding * tail;
  const [curvature, variation] = [4 * Math.exp(-0.5), 2 * (1 + 4 * Math.exp(-1.5))].map((bend) => bend / Math.sqrt(2 * Math.PI));
  const apart = (curvature / sigma ** 2 + variation / sigma ** 3) / 48 + 2.1 * Math.exp(-2 * (Math.PI * sigma) ** 2);
  return Math.min(1, mechanism + (1 + Math.exp(epsilon)) * numbers * apart);
}

export default ({ must, big, ratio, above, parse, has, is, list, text, isFraction, concat, sensitivity }, model) => {
  const number = (fraction) => (([top, bottom]) => Number(top) / Number(bottom))(parse(fraction));
  const whole = (least, most) => (value) => Number.isInteger(value) && value >= least && value <= most;
  const safe = (fraction) => isFraction(fraction) && parse(fraction).every((part) => Number.isSafeInteger(Number(part)));
  const field = (value) =>
    has({ name: text, values: (found) => list(text)(found) && found.length > 1 })(value) ||
    (has({ high: safe, low: safe, name: text })(value) && above(parse(value.high), parse(value.low)));
  const rows = (fits) => (value) => Array.isArray(value) && value.length > 0 && value.every(fits);
  const shape = has({
    evaluation: (value) => isFraction(value) && (([top, bottom]) => top >= 0n && top < bottom)(parse(value)),
    fields: list(field),
    matrices: rows(rows(rows(whole(-2 * UNIT, 2 * UNIT)))),
    resolution: whole(1, FINEST),
    statistic: is("moments"),
  });

  const coded = ({ fields }) => fields.map((one) => (one.values ? one : { ...one, low: number(one.low), high: number(one.high) }));
  const scaled = ({ matrices }) => matrices.map((matrix) => matrix.map((row) => row.map((entry) => entry / UNIT)));
  const dimension = ({ matrices }) => matrices[0].length;
  const numbers = (d) => d + (d * (d + 1)) / 2;
  const largest = ({ resolution }) => DIAGONAL * resolution ** 2;

  /** Whether no context has features longer than 1: the length is convex in numbers, so their bounds are tried. */
  function short(context) {
    const ends = (one) => (one.values ?? [one.low, one.high]).map((value) => ({ [one.name]: value }));
    const extremes = coded(context).reduce((found, one) => found.flatMap((known) => ends(one).map((more) => ({ ...known, ...more }))), [{}]);
    const lengths = extremes.flatMap((one) => exact(scaled(context), codeOf(coded(context), one)).map((vector) => Math.sqrt(dot(vector, vector))));
    return lengths.every((length) => length * (1 + 1e-12) <= 1 - Math.sqrt(dimension(context)) / (2 * context.resolution));
  }

  const stated = (terms) => ({ ...model.stated(terms), trust: ["two-servers"], proofs: [0], participations: [1], distribution: ["discrete-gaussian"], assumptions: [ASSUMED] });

  function sound({ context, options, answer, aggregation, guarantee, noise }) {
    const { dishonest_count, dishonest_fraction, missing_fraction } = aggregation;
    if (`${[dishonest_count, dishonest_fraction, missing_fraction]}` !== "0,0,0" || !shape(context) || answer.metrics.length > 1) return false;
    const [d, columns] = [dimension(context), codeOf(coded(context), {}).length];
    const sizes = context.matrices.length === options.length && context.matrices.every((matrix) => matrix.length === d && matrix.every((row) => row.length === columns));
    const many = context.fields.reduce((count, { values }) => count * (values?.length ?? 2), 1);
    const names = new Set(context.fields.map(({ name }) => name)).size === context.fields.length;
    if (!sizes || !names || d > MOST_FEATURES || many > MOST_CONTEXTS || answer.levels > context.resolution || !short(context)) return false;
    const [sigma, delta] = [noise.minimum[0] / noise.minimum[1], number(guarantee.delta)];
    return delta > 0 && delta < 1 && vectorDelta(sigma, SQUARED * largest(context) ** 2, numbers(d), number(guarantee.epsilon)) <= delta * (1 + SLACK);
  }

  /** Parts, paused options, mean and roots of a policy; `d` is 0 if it is none. */
  function policyOf(bytes) {
    const view = new DataView(concat(bytes).buffer);
    const [parts, count] = bytes.length > 1 ? bytes : [0, 0];
    const [start, floats] = [2 + 2 * count, (bytes.length - 2 - 2 * count) / 4];
    const d = parts ? Math.round((Math.sqrt(1 + 4 * parts * floats) - 1) / (2 * parts)) : 0;
    if (!(parts <= MOST_PARTS && d > 0 && d <= 2 * MOST_FEATURES && d + parts * d * d === floats)) return { d: 0 };
    const paused = Array.from({ length: count }, (_, at) => view.getUint16(2 + 2 * at));
    const read = (at) => Array.from({ length: d }, (_, place) => view.getFloat32(start + 4 * (at * d + place)));
    const roots = Array.from({ length: parts }, (_, part) => Array.from({ length: d }, (_, row) => read(1 + part * d + row)));
    return { d, paused, mean: read(0), roots };
  }

  function isPolicy({ context, options }, { d, paused, mean, roots }) {
    const finite = () => [mean, ...roots.flat()].flat().every(Number.isFinite);
    const known = () => new Set(paused).size === paused.length && paused.length < options.length && paused.every((option) => option < options.length);
    return d === dimension(context) && finite() && known();
  }

  function read(reader, front) {
    const policy = front.option === BY_POLICY && reader.take(Number(big(reader.take(4))));
    const round = model.read(reader, front);
    return policy ? { ...round, policy, numbers: numbers(policyOf(policy).d) } : round;
  }

  /** Rounds of an assigned option have Laplace noise for their own sensitivity, levels / ε. */
  function checks(terms, round) {
    if (!round.policy) {
      const [top, bottom] = parse(terms.guarantee.epsilon);
      return model.checks({ ...terms, noise: { ...terms.noise, minimum: ratio(sensitivity(terms) * bottom, top) } }, round);
    }
    return [
      ["policy", isPolicy(terms, policyOf(round.policy)), "its policy"],
      ["modulus", round.modulus > BigInt(round.places) * BigInt(2 * largest(terms.context)), round.modulus],
      ...model.checks(terms, round),
    ];
  }
  const cost = (terms, scale, _accept, round) => (round && !round.policy ? ratio(sensitivity(terms) * scale[1], scale[0]) : parse(terms.guarantee.epsilon));

  /** Refuses anything but a value for each field, before anything is sent. */
  function segment({ context: { fields } }, context) {
    const names = fields.map(({ name }) => name);
    must(context instanceof Object, "context", `the context is missing: it must have ${names.join(", ")}`);
    for (const name in context) must(names.includes(name), "context", `the context has ${name}: it must have ${names.join(", ")}`);
    for (const { name, values, low, high } of fields) {
      const given = Object.hasOwn(context, name) && typeof context[name] !== "object" ? `${context[name]}` : "";
      const known = values ? values.includes(given) : given.trim() && Number.isFinite(+given);
      must(known, "context", `${name} is ${context[name]}: it must be ${values ? `one of ${values.join(", ")}` : `a number from ${low} to ${high}`}`);
    }
  }

  const random = (draw) => Number(big(draw(6))) / 2 ** 48;
  const normal = (draw) => Math.sqrt(-2 * Math.log(1 - random(draw))) * Math.cos(2 * Math.PI * random(draw)); // Box and Muller 1958

  /** The features of the option that a draw picks, and the option. */
  function choose(terms, { policy }, context, draw = (size) => crypto.getRandomValues(new Uint8Array(size))) {
    segment(terms, context);
    const [found, about] = [policyOf(policy), terms.context];
    const vectors = featuresOf(scaled(about), about.resolution, codeOf(coded(about), context));
    const part = Math.floor(random(draw) * found.roots.length);
    const option = picked(found, vectors, part, found.mean.map(() => normal(draw)));
    return [...vectors[option], option];
  }

  function encode(terms, round, place, levels, draw) {
    if (!round.policy) return model.encode(terms, round, place, levels, draw);
    const [{ resolution }, x, level] = [terms.context, levels.slice(0, dimension(terms.context)), levels.at(-1)];
    const fits = levels.length === x.length + 2 && x.every(Number.isInteger) && dot(x, x) <= resolution ** 2;
    must(fits && whole(0, terms.answer.levels)(level), "answer", "the features are longer than 1, or the level is none of the terms");
    const first = Math.floor((DIAGONAL * resolution) / terms.answer.levels);
    const values = momentsOf(x, 2 * level - terms.answer.levels, [first, DIAGONAL, OTHER]);
    return model.encode(terms, { ...round, least: -largest(terms.context), most: largest(terms.context) }, place, values, draw);
  }

  return { ...model, stated, sound, read, checks, cost, segment, choose, encode };
};
