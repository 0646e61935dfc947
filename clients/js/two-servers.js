// Trust model "two-servers" of tacit.js: an answer in two shares, each encrypted to one of two servers that add the noise.

export default ({ must, unhex, utf8, concat, big, bits, digits, sha256, uniform, limit, numberSize, ratio, above, spell, isKey, isPure, seal, sensitivity }) => {
  const BODY = { assignedUntil: 8, grace: 4, places: 4, minimum: 4, length: 4, suite: 1, collector: 32, line0: 32, key0: 32, line1: 32, key1: 32 };
  const FIELD = 2n ** 64n - 2n ** 32n + 1n; // of range proofs
  const FIELD128 = 2n ** 128n - 7n * 2n ** 66n + 1n; // of proofs of tables
  const provenSize = (levels, count = bits(levels)) => 8 * (count + 2 ** (1 + bits(count)) + (count < 2)); // of a number and its proof

  const stated = () => ({
    assumptions: ['[{"id":"bounded-adversary"},{"count":1,"id":"honest-servers","of":2},{"id":"pinned-keys"}]'],
    by: ["servers"], distribution: ["discrete-laplace"], parties: ["coordinator,helper"], proofs: [0, 1], view: ["other-server"],
  });

  function read({ take, integer, fraction, fields }, front) {
    const proofs = +(front.kind === 0x74610228);
    must(proofs || front.kind === 0x74610220, "round", "this is no round of two servers");
    if (proofs) take(32); // the servers' commitment to their verify key
    const round = { ...front, proofs, ...fields(BODY) };
    must(round.suite === 3, "suite", `the round's suite, ${round.suite}, is not what the terms promise`);
    const { key0, key1, collector, line0, line1 } = round;
    must(new Set([key0, key1, collector]).size === 3 && line0 !== line1 && isKey(key0) && isKey(key1), "keys", "a key of the round is malformed or there twice");
    return { ...round, scale: fraction(), modulus: integer() };
  }

  const checks = (terms, { proofs, modulus, places, levels, length, scale, policy }) => [
    ["proofs", proofs === terms.proofs && (!proofs || modulus === (policy ? FIELD128 : FIELD)), proofs],
    ["length", modulus > 1n && length * (proofs && !policy ? provenSize(levels) : numberSize(modulus)) < 2 ** 30, length],
    ["noise", !above(terms.noise.minimum.map(BigInt), scale) && scale.every((part) => part < 1n << 208n), spell(scale)], // costs fit into exports
    ["modulus", modulus > BigInt(places) * BigInt(levels), modulus],
  ];

  const cost = (terms, scale) => ratio(sensitivity(terms) * scale[1], scale[0]);

  // ChaCha20 (RFC 8439)
  function mask(seed, modulus, count) {
    const size = 8 * Math.ceil(bits(modulus - 1n) / 64);
    const [numbers, stream] = [[], []];
    for (let block = 0; numbers.length < count; ) {
      if (stream.length < size) {
        const start = Uint32Array.of(0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, ...new Uint32Array(seed.slice().buffer), block++, 0, 0, 0);
        const x = start.slice();
        for (let n = 0; n < 80; n++) {
          const [a, b, c, d] = [0, 1, 2, 3].map((row) => 4 * row + ((n + (n & 4 ? row : 0)) & 3));
          for (const [i, j, k, by] of [[a, b, d, 16], [c, d, b, 12], [a, b, d, 8], [c, d, b, 7]]) {
            x[i] += x[j];
            x[k] ^= x[i];
            x[k] = (x[k] << by) | (x[k] >>> (32 - by));
          }
        }
        stream.push(...new Uint8Array(x.map((word, place) => word + start[place]).buffer));
        continue;
      }
      const word = big(stream.splice(0, size).reverse());
      if (word < limit(size, modulus)) numbers.push(word % modulus);
    }
    return numbers;
  }

  function shared({ modulus, length }, values, draw) {
    const size = numberSize(modulus);
    const packed = (numbers) => concat(...numbers.map((number) => digits(number, size)));
    const seed = length * size > 32 && draw(32);
    const first = seed ? mask(seed, modulus, length) : values.map(() => uniform(modulus, draw));
    const second = first.map((part, metric) => (((BigInt(values[metric]) - part) % modulus) + modulus) % modulus);
    return [seed || packed(first), packed(second)];
  }

  async function encode(terms, round, place, values, draw = (size) => crypto.getRandomValues(new Uint8Array(size))) {
    const { length, levels, proofs, policy, context, least = 0, most = levels } = round;
    must(values.length === length && values.every((value) => Number.isInteger(value) && value >= least && value <= most), "answer", "the values are not levels of the terms");
    const words = [draw(16), draw(16)];
    const number = digits(place.number, 4);
    const digests = await Promise.all(words.map(async (word) => (await sha256(concat(utf8("tacit word v2"), word))).slice(0, 16)));
    const proven = async ({ shares, tableShares }) => {
      if (!policy) return shares(levels, context, values, draw);
      const tag = await sha256(concat(utf8("tacit tag v2"), context, number, ...digests));
      return tableShares(context, values, tag.slice(0, 16), draw);
    };
    const parts = proofs ? await proven(await import("./prio3.js")) : shared(round, values, draw);
    return Promise.all([0, 1].map(async (role) => {
      const info = concat(utf8("tacit half v2"), context, [role], number);
      const sealed = await seal(unhex(role ? round.key1 : round.key0), info, concat(words[role], digests[1 - role], parts[role]));
      return concat(unhex(`74610221${round.identity}`), [role], number, place.token, sealed);
    }));
  }

  return { stated, sound: isPure, read, checks, cost, encode, mask };
};
