// Report shares of Prio3Count, Prio3Sum and Prio3Histogram for two aggregators (draft-irtf-cfrg-vdaf-20):
// TurboSHAKE128 (RFC 9861), Field64 and Field128, and the client's side of the proofs. A device loads it only where terms ask for proofs.

export const MODULUS = 2n ** 64n - 2n ** 32n + 1n;
const FIELD64 = { modulus: MODULUS, size: 8 }; // bytes of an element
const FIELD128 = { modulus: 2n ** 128n - 7n * 2n ** 66n + 1n, size: 16 };
const SEED = 32;
export const RANDOM = 2 * SEED;
export const HISTOGRAM_RANDOM = 4 * SEED;

// TurboSHAKE128: the last 12 rounds of Keccak-p[1600], lanes as integers of 64 bits

const lane = (value) => BigInt.asUintN(64, value);
const turned = (value, by) => lane((value << BigInt(by)) | (value >> BigInt(64 - by)));
const CONSTANTS = (() => {
  const found = [];
  for (let round = 0, register = 1; round < 24; round++) {
    let constant = 0n;
    for (let bit = 0; bit < 7; bit++) {
      if (register & 1) constant |= 1n << BigInt((1 << bit) - 1);
      register = ((register << 1) ^ ((register >> 7) * 0x171)) & 0xff;
    }
    found.push(constant);
  }
  return found.slice(12);
})();

function permute(lanes) {
  for (const constant of CONSTANTS) {
    const column = (x) => lanes[x % 5] ^ lanes[(x % 5) + 5] ^ lanes[(x % 5) + 10] ^ lanes[(x % 5) + 15] ^ lanes[(x % 5) + 20];
    const parities = [0, 1, 2, 3, 4].map((x) => column(x + 4) ^ turned(column(x + 1), 1));
    for (let at = 0; at < 25; at++) lanes[at] ^= parities[at % 5];
    let [x, y, moved] = [1, 0, lanes[1]];
    for (let step = 1, by = 1; step < 25; step++, by += step) {
      [x, y] = [y, (2 * x + 3 * y) % 5];
      [moved, lanes[x + 5 * y]] = [lanes[x + 5 * y], turned(moved, by % 64)];
    }
    for (let row = 0; row < 25; row += 5) {
      const old = lanes.slice(row, row + 5);
      for (let at = 0; at < 5; at++) lanes[row + at] = old[at] ^ (lane(~old[(at + 1) % 5]) & old[(at + 2) % 5]);
    }
    lanes[0] ^= constant;
  }
}

const RATE = 168;

/** A function that gives the next bytes of TurboSHAKE128 of a message, as many as are asked for. */
export function turboShake128(message, domain) {
  const padded = new Uint8Array(Math.ceil((message.length + 1) / RATE) * RATE);
  padded.set(message);
  padded[message.length] = domain;
  padded[padded.length - 1] ^= 0x80;
  const view = new DataView(padded.buffer);
  const lanes = Array(25).fill(0n);
  for (let block = 0; block < padded.length; block += RATE) {
    for (let at = 0; at < RATE / 8; at++) lanes[at] ^= view.getBigUint64(block + 8 * at, true);
    permute(lanes);
  }
  let used = 0;
  return (size) => {
    const bytes = new Uint8Array(size);
    for (let at = 0; at < size; at++, used++) {
      if (used === RATE) {
        permute(lanes);
        used = 0;
      }
      bytes[at] = Number((lanes[used >> 3] >> BigInt(8 * (used & 7))) & 0xffn);
    }
    return bytes;
  };
}

const joined = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
const number = (bytes) => bytes.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n);

/** XofTurboShake128 of a seed: a source of bytes. */
export const stream = (seed, tag, binder) => turboShake128(joined([tag.length & 255, tag.length >> 8], tag, [seed.length], seed, binder), 1);

/** So many field elements; words that are not below the modulus are skipped. */
export function expand(source, count, { modulus, size } = FIELD64) {
  const numbers = [];
  while (numbers.length < count) {
    const word = number(source(size));
    if (word < modulus) numbers.push(word);
  }
  return numbers;
}

// Fields

const mod = (value, { modulus }) => ((value % modulus) + modulus) % modulus;
function power(base, exponent, { modulus }) {
  let result = 1n;
  for (let rest = exponent; rest; rest >>= 1n, base = (base * base) % modulus) if (rest & 1n) result = (result * base) % modulus;
  return result;
}
const inverse = (value, field) => power(value, field.modulus - 2n, field);
const root = (order, field) => power(7n, (field.modulus - 1n) / BigInt(order), field);
const less = (numbers, others, field) => numbers.map((value, at) => mod(value - others[at], field));

function pack(numbers, { size }) {
  const bytes = new Uint8Array(size * numbers.length);
  const view = new DataView(bytes.buffer);
  numbers.forEach((value, at) => {
    for (let part = 0; part < size; part += 8) view.setBigUint64(size * at + part, BigInt.asUintN(64, value >> BigInt(8 * part)), true);
  });
  return bytes;
}

// Proofs: of a bit x·x - x = 0, of each bit of a number x·(x - 1) = 0

/** For bits: the algorithm's number, the wires and the function of its gadget, and the weights of the bits. */
export const PRIO3_COUNT = { algorithm: 1, wires: 2, gadget: (a, b) => a * b, weights: [1] };

/** For whole numbers from 0 to a limit. */
export function prio3Sum(limit) {
  if (!(Number.isSafeInteger(limit) && limit > 0)) throw new RangeError(`limit is ${limit}: must be a whole number from 1 to 2^53 - 1`);
  const lower = Array.from({ length: limit.toString(2).length - 1 }, (_, place) => 2 ** place);
  return { algorithm: 2, wires: 1, gadget: (a) => a * (a - 1n), weights: [...lower, limit - 2 ** lower.length + 1] };
}

const widthOf = (calls) => 2 ** calls.toString(2).length;
const proofSize = (wires, calls) => wires + 2 * widthOf(calls) - 1;

/** Bits of a measurement, by weight; the last is set if the others cannot reach it. */
function encode({ weights }, measurement) {
  const limit = weights.reduce((sum, weight) => sum + weight);
  if (!(Number.isInteger(measurement) && measurement >= 0 && measurement <= limit)) throw new RangeError(`measurement is ${measurement}: must be from 0 to ${limit}`);
  const last = measurement > limit - weights.at(-1);
  const rest = measurement - (last ? weights.at(-1) : 0);
  return weights.map((weight, place) => BigInt(place < weights.length - 1 ? Math.floor(rest / weight) % 2 : +last));
}

/**
 * A wire's polynomial has degree below p and the values `known` at the p-th roots of unity. Its value at the
 * (2k + 1)-th of the 2p-th roots is -2/p times the sum of known[j] / (g^(2(k - j) + 1) - 1), for their generator g.
 */
function interpolation(p, field) {
  const g = root(2 * p, field);
  const factors = Array.from({ length: p }, (_, m) => inverse(power(g, BigInt(2 * m + 1), field) - 1n, field));
  const scale = mod(-2n * inverse(BigInt(p), field), field);
  return (known) => known.map((_, k) => (scale * (known.reduce((sum, value, j) => sum + value * factors[(k - j + p) % p], 0n) % field.modulus)) % field.modulus);
}

/** The proof for a gadget whose wires have these values at its calls, one row per wire. */
function prove(gadget, rows, seeds, field) {
  const p = widthOf(rows[0].length);
  const between = interpolation(p, field);
  const columns = rows.map((row, wire) => {
    const known = [seeds[wire], ...row, ...Array(p - 1 - row.length).fill(0n)];
    const others = between(known);
    return known.flatMap((value, at) => [value, others[at]]);
  });
  const outputs = columns[0].map((_, at) => mod(gadget(...columns.map((column) => column[at])), field));
  return [...seeds, ...outputs.slice(0, -1)];
}

const tagged = (algorithm, context) => (usage) => joined([18, 0, 0, 0, 0, algorithm, 0, usage], context);

/** Both aggregators' shares of measurement and proof, in full and as a seed, from `RANDOM` random bytes; `context` is the application's. */
export function shard(about, context, measurement, drawn) {
  if (drawn.length !== RANDOM) throw new RangeError(`there are ${drawn.length} random bytes: must be ${RANDOM}`);
  const tag = tagged(about.algorithm, context);
  const [seed, proving] = [drawn.slice(0, SEED), drawn.slice(SEED)];
  const bits = encode(about, measurement);
  const seeds = expand(stream(proving, tag(4), [1]), about.wires);
  const helper = [
    ...expand(stream(seed, tag(1), [1]), bits.length),
    ...expand(stream(seed, tag(2), [1, 1]), proofSize(about.wires, bits.length)),
  ];
  const whole = [...bits, ...prove(about.gadget, seeds.map(() => bits), seeds, FIELD64)];
  return [pack(less(whole, helper, FIELD64), FIELD64), seed];
}

/** Both aggregators' shares of several whole numbers from 0 to `levels`: of bits with Prio3Count, of others with Prio3Sum. */
export function shares(levels, context, values, draw) {
  const about = levels === 1 ? PRIO3_COUNT : prio3Sum(levels);
  const pairs = values.map((value) => shard(about, context, value, draw(RANDOM)));
  return [0, 1].map((role) => joined(...pairs.map((pair) => pair[role])));
}

// Prio3Histogram: elements are 0 or 1 and sum to one. Call i of the gadget sums r^(j+1) x (x - 1) over chunk i, r of the joint randomness.

/** Public share and both input shares of a one in `cell` of `length` cells, from `HISTOGRAM_RANDOM` random bytes; the nonce is the report's. */
export function histogram(length, context, cell, nonce, drawn, chunk = Math.floor(Math.sqrt(length))) {
  if (drawn.length !== HISTOGRAM_RANDOM) throw new RangeError(`there are ${drawn.length} random bytes: must be ${HISTOGRAM_RANDOM}`);
  if (!(Number.isInteger(cell) && cell >= 0 && cell < length)) throw new RangeError(`cell is ${cell}: must be from 0 to ${length - 1}`);
  const [tag, field, calls, wires] = [tagged(4, context), FIELD128, Math.ceil(length / chunk), 2 * chunk];
  const [seed, blind, ownBlind, proving] = [0, 1, 2, 3].map((part) => drawn.slice(SEED * part, SEED * (part + 1)));
  const elements = Array.from({ length }, (_, at) => BigInt(at === cell));
  const theirs = expand(stream(seed, tag(1), [1]), length, field);
  const own = less(elements, theirs, field);
  const part = (role, key, share) => stream(key, tag(7), joined([role], nonce, pack(share, field)))(SEED);
  const shared = joined(part(0, ownBlind, own), part(1, blind, theirs));
  const joint = expand(stream(stream(new Uint8Array(SEED), tag(6), shared)(SEED), tag(3), [1]), calls, field);
  const rows = Array.from({ length: wires }, (_, wire) =>
    joint.map((factor, call) => {
      const element = elements[call * chunk + (wire >> 1)] ?? 0n;
      return wire % 2 ? mod(element - 1n, field) : (power(factor, BigInt((wire >> 1) + 1), field) * element) % field.modulus;
    }),
  );
  const gadget = (...inputs) => inputs.reduce((sum, value, at) => (at % 2 ? sum + value * inputs[at - 1] : sum), 0n);
  const proof = prove(gadget, rows, expand(stream(proving, tag(4), [1]), wires, field), field);
  const rest = less(proof, expand(stream(seed, tag(2), [1, 1]), proofSize(wires, calls), field), field);
  return [shared, [joined(pack([...own, ...rest], field), ownBlind), joined(seed, blind)]];
}

/** Both aggregators' shares of a table with a single one, each after the public share. */
export function tableShares(context, table, nonce, draw) {
  const [common, parts] = histogram(table.length, context, table.indexOf(1), nonce, draw(HISTOGRAM_RANDOM));
  return parts.map((one) => joined(common, one));
}
