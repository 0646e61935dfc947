// Contextual experiments of tacit.js: the device chooses by its participant's context and the policy of the round, and reports
// one cell of a table. It wraps the trust model of the terms; context, choice and answer leave the device inside a report only.

const ONE = 65536; // the weights of a segment sum to it
const BY_POLICY = 0xffff; // in place of a round's option
const MOST_CELLS = 512;
const SENSITIVITY = 2n; // replacing a participant moves two cells by one

/** The place of a context among all combinations of values, the last field fastest. */
export function segmentOf(fields, context) {
  return fields.reduce((place, { name, values }) => place * values.length + values.indexOf(`${context[name]}`), 0);
}

/** The option of a row of weights for a number drawn from 0 to 65,535. */
export function chosen(weights, drawn) {
  let option = 0;
  for (let left = drawn; left >= weights[option]; option++) left -= weights[option];
  return option;
}

/** The cell (segment, option, outcome) of a table. */
export const cellOf = (options, [segment, option, success]) => (segment * options + option) * 2 + success;

export default ({ must, big, uniform, ratio, parse, has, is, list, text, isFraction, concat }, model) => {
  const shape = has({
    evaluation: (value) => isFraction(value) && (([top, bottom]) => top >= 0n && top < bottom)(parse(value)),
    fields: list(has({ name: text, values: (value) => list(text)(value) && value.length > 1 })),
    statistic: is("table"),
  });
  const segments = ({ fields }) => fields.reduce((count, { values }) => count * values.length, 1);
  const cells = ({ context, options }) => segments(context) * options.length;

  const stated = (terms) => ({
    ...(must(terms.context?.statistic === "table", "statistic", `this device does not support statistic ${terms.context?.statistic}: use a device in Python`) && model.stated(terms)),
    trust: ["two-servers"], participations: [1],
    assumptions: ['[{"id":"bounded-adversary"},{"count":1,"id":"honest-servers","of":2},{"id":"pinned-keys"},{"id":"protects","secret":"context-and-rewards"},{"id":"public-membership"}]'],
  });

  const sound = (terms) => {
    const { context, answer } = terms;
    const known = shape(context) && new Set(context.fields.map(({ name }) => name)).size === context.fields.length;
    return known && cells(terms) <= MOST_CELLS && answer.levels === 1 && answer.metrics.length === 1 && model.sound(terms, SENSITIVITY);
  };

  function read(reader, front) {
    const policy = front.option === BY_POLICY && reader.take(Number(big(reader.take(4))));
    const round = model.read(reader, front);
    return policy ? { ...round, policy, numbers: policy.length / 2 } : round;
  }

  /** The weights of every segment, in 4 bytes each. */
  function rows({ context, options }, policy) {
    const view = new DataView(concat(policy).buffer);
    const weight = (segment, option) => view.getUint32(4 * (segment * options.length + option));
    return Array.from({ length: segments(context) }, (_, segment) => options.map((_, option) => weight(segment, option)));
  }
  const isPolicy = (terms, policy) => policy.length === 4 * cells(terms) && rows(terms, policy).every((row) => row.reduce((sum, one) => sum + one) === ONE);

  /** Terms state the noise of tables; an assigned option has as much for its own sensitivity, 1. */
  const halved = ({ noise, ...terms }) => ({ ...terms, noise: { ...noise, minimum: [noise.minimum[0], 2 * noise.minimum[1]] } });
  const checks = (terms, round) => [
    ["policy", !round.policy || isPolicy(terms, round.policy), "its policy"],
    ...model.checks(round.policy ? terms : halved(terms), round),
  ];
  const cost = (_terms, scale, _accept, round) => ratio((round && !round.policy ? 1n : SENSITIVITY) * scale[1], scale[0]);

  /** Refuses anything but a value for each field, before anything is sent. */
  function segment({ context: { fields } }, context) {
    const names = fields.map(({ name }) => name);
    must(context instanceof Object, "context", `the context is missing: it must have ${names.join(", ")}`);
    for (const name in context) must(names.includes(name), "context", `the context has ${name}: it must have ${names.join(", ")}`);
    for (const { name, values } of fields) {
      const known = Object.hasOwn(context, name) && values.includes(`${context[name]}`);
      must(known, "context", `${name} is ${context[name]}: it must be one of ${values.join(", ")}`);
    }
    return segmentOf(fields, context);
  }

  /** Segment and option, drawn with the browser's own randomness, exactly. */
  function choose(terms, { policy }, context, draw) {
    const place = segment(terms, context);
    return [place, chosen(rows(terms, policy)[place], Number(uniform(BigInt(ONE), draw)))];
  }

  function encode(terms, round, place, levels, draw) {
    if (!round.policy) return model.encode(terms, round, place, levels, draw);
    const cell = cellOf(terms.options.length, levels);
    return model.encode(terms, round, place, Array.from({ length: round.length }, (_, at) => +(at === cell)), draw);
  }

  return { ...model, stated, sound, read, checks, cost, segment, choose, encode };
};
