// Holds clients/js/tacit.js against the vectors of Python; runs in Node and in a browser alike.

const unhex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const utf8 = (text) => new TextEncoder().encode(text);
const big = (bytes) => BigInt(`0x0${hex(bytes)}`);

const PKCS8 = "302e020100300506032b656e04220420";
const privateKey = (seed) => crypto.subtle.importKey("pkcs8", unhex(PKCS8 + seed), "X25519", true, ["deriveBits"]);
const publicKey = (bytes) => crypto.subtle.importKey("raw", unhex(bytes), "X25519", true, []);
const shared = async (own, peer) => new Uint8Array(await crypto.subtle.deriveBits({ name: "X25519", public: await publicKey(peer) }, own, 256));

/** Random bytes that are given, in order. */
const from = (stream) => {
  let at = 0;
  return (size) => {
    if (at + size > stream.length) throw new Error("the stream is at its end");
    return stream.slice(at, (at += size));
  };
};

/** What HPKE sealed, opened with the recipient's key. */
async function open(tacit, sealed, own, recipient, info) {
  const [enc, rest] = [sealed.slice(0, 32), sealed.slice(32)];
  const { schedule } = await tacit.hpke();
  const [key, iv] = await schedule(await shared(own, hex(enc)), enc, unhex(recipient), info);
  const cipher = await crypto.subtle.importKey("raw", key, "AES-GCM", false, ["decrypt"]);
  return new Uint8Array(await crypto.subtle.decrypt({ name: "AES-GCM", iv }, cipher, rest));
}

const concat = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
const info = (round, role, place) => concat(utf8("tacit half v2"), round.context, [role], place.slice(0, 4));

/** The digest of terms, or null if they are refused; any other error is one of the module. */
async function digestOf(tacit, text) {
  try {
    return (await tacit.readTerms(text)).digest;
  } catch (problem) {
    if (!(problem instanceof tacit.Refused)) throw problem;
    return null;
  }
}

/** What a device makes of an announcement at a time. */
async function offered(tacit, { terms, announcement, now }) {
  try {
    const round = await tacit.accept(await tacit.readTerms(terms), unhex(announcement));
    if (Math.floor(now) > round.assignedUntil || round.margin < 1) return { cost: null };
    const cost = round.cost[1] === 1n ? `${round.cost[0]}` : round.cost.join("/");
    return { cost, context: hex(round.context) };
  } catch (problem) {
    if (!(problem instanceof tacit.Refused)) throw problem;
    return { cost: null };
  }
}

/** The module's verdicts about texts and announcements that were made up. */
export async function verdicts(tacit, { texts = [], rounds = [] }) {
  return {
    digests: await Promise.all(texts.map((text) => digestOf(tacit, text))),
    costs: await Promise.all(rounds.map(async (round) => (await offered(tacit, round)).cost)),
  };
}

/** Field and sentence of the refusal of a text of terms. */
export async function refusal(tacit, { text }) {
  return tacit.readTerms(text).then(() => null, ({ field, message }) => [field, message]);
}

/** Halves of reports that Python's servers are to open. */
export async function halves(tacit, { terms, announcement, places, values }) {
  const shown = await tacit.readTerms(terms);
  const [model, round] = [await tacit.modelOf(shown), await tacit.accept(shown, unhex(announcement))];
  const one = (place) => ({ number: Number(big(unhex(place).slice(0, 4))), token: unhex(place).slice(4) });
  return Promise.all(places.map(async (place, number) => (await model.encode(shown, round, one(place), values[number])).map((half) => half && hex(half))));
}

const LOCAL = globalThis.process ? "../../clients/js/local.js" : "./local.js";

/** Noise from given words. */
async function local(words, kind, [top, bottom], count) {
  const draw = (await import(LOCAL)).sampler(() => {
    if (!words.length) throw new Error("the words are at their end");
    return words.shift();
  });
  const parameter = kind === "laplace" ? [top, bottom] : [bottom, top];
  return { values: Array.from({ length: count }, () => `${BigInt(draw[kind](parameter))}`), left: words.length };
}

/** All differences from the vectors, each as a sentence. */
export async function failures(tacit, { device, terms, primitives, twoServers, contextual }) {
  const wrong = [];
  const same = (what, found, known) => JSON.stringify(found) === JSON.stringify(known) || wrong.push(`${what}: ${JSON.stringify(found)} instead of ${JSON.stringify(known)}`);
  const refuses = async (what, work) => {
    try {
      await work();
      wrong.push(`${what}: accepted`);
    } catch (problem) {
      if (!(problem instanceof tacit.Refused)) wrong.push(`${what}: ${problem}`);
    }
  };

  for (const { text, digest } of device.terms) same(`terms ${text}`, await digestOf(tacit, text), digest);
  for (const { old, new: next, approvals, refused } of device.successors) {
    const [before, after] = [await tacit.readTerms(old), await tacit.readTerms(next)];
    if (refused) await refuses(`successor ${next}`, async () => tacit.checkSuccessor(before, after));
    else tacit.checkSuccessor(before, after);
    await tacit.checkSigned(before, "successor terms", utf8(next), approvals.map(unhex));
    await refuses("approvals as signatures", () => tacit.checkSigned(before, "terms", utf8(next), approvals.map(unhex)));
    await refuses("approvals in another order", () => tacit.checkSigned(before, "successor terms", utf8(next), approvals.map(unhex).reverse()));
    await refuses("one approval", () => tacit.checkSigned(before, "successor terms", utf8(next), approvals.map(unhex).slice(1)));
  }
  for (const { canonical, digest, signatures } of terms.terms) {
    const read = await tacit.readTerms(canonical);
    same("digest", read.digest, digest);
    await tacit.checkSigned(read, "terms", utf8(canonical), signatures.map(unhex));
    const spoilt = signatures.map(unhex);
    spoilt[1][5] ^= 1;
    await refuses("a spoilt signature", () => tacit.checkSigned(read, "terms", utf8(canonical), spoilt));
  }
  for (const round of device.rounds) {
    const { terms: _, announcement, now, ...known } = round;
    same(`round ${announcement}`, await offered(tacit, round), known);
  }
  const { terms: text, announcement, cases } = device.outcomes;
  const [shown, round] = [await tacit.readTerms(text), await tacit.accept(await tacit.readTerms(text), unhex(announcement))];
  for (const { message, said } of cases) {
    if (said === null) await refuses(`outcome ${message}`, () => tacit.readOutcome(shown, round, unhex(message)));
    else same(`outcome ${message}`, await tacit.readOutcome(shown, round, unhex(message)), said);
  }
  for (const { range, levels, value, draw, level } of device.levels) {
    const drawn = unhex(draw);
    same(`level of ${value}`, tacit.level({ range, levels }, value, (size) => drawn.slice(0, size)), level);
  }
  let draws = 0;
  const drawn = tacit.uniform(3n, (size) => new Uint8Array(size).fill(draws++ ? 0 : 255)); // the last word would favour 0
  same("a word that is drawn again", [draws, `${drawn}`], [2, "0"]);
  for (const { kind, parameter, words, values } of device.draws) {
    const drawn = await local(words.match(/.{16}/g).map((word) => BigInt(`0x${word}`)), kind, parameter.map(BigInt), values.length);
    same(`${kind} of ${parameter}`, [drawn.values, drawn.left], [values, 0]);
  }
  const { expBounds } = await import(LOCAL);
  for (const { rate, bits, bounds } of device.exponentials) same(`e^-${rate}`, expBounds(rate.map(BigInt), BigInt(bits)).map(String), bounds);
  const { mask } = await tacit.modelOf({ trust: "two-servers" });
  for (const { seed, modulus, numbers } of primitives.masks) {
    same(`mask modulo ${modulus}`, mask(unhex(seed), BigInt(modulus), numbers.length).map(String), numbers);
  }
  const rfc = device.hpke;
  const pair = { privateKey: await privateKey(rfc.ephemeral), publicKey: await publicKey(rfc.enc) };
  const { schedule, seal } = await tacit.hpke();
  const scheduled = await schedule(await shared(pair.privateKey, rfc.recipient), unhex(rfc.enc), unhex(rfc.recipient), unhex(rfc.info));
  same("RFC 9180", scheduled.map(hex), [rfc.key, rfc.nonce]);
  const sealed = await seal(unhex(rfc.recipient), unhex(rfc.info), utf8("beauty"), pair);
  same("enc", hex(sealed.slice(0, 32)), rfc.enc);
  same("sealed", hex(await open(tacit, sealed, await privateKey(rfc.private), rfc.recipient, unhex(rfc.info))), hex(utf8("beauty")));
  wrong.push(...(await choiceFailures(tacit, contextual.table, same)));
  for (const known of contextual.linear) await momentFailures(known, same);
  for (const known of twoServers) wrong.push(...(await twoServerFailures(tacit, known, device.streams, same)));
  return wrong;
}

const CONTEXTUAL = globalThis.process ? "../../clients/js/contextual.js" : "./contextual.js";

const MOMENTS = globalThis.process ? "../../clients/js/moments.js" : "./moments.js";

/** Codes, features, options and moments of contexts. */
async function momentFailures({ map, policy, levels, people }, same) {
  const { codeOf, featuresOf, picked, momentsOf } = await import(MOMENTS);
  for (const { context, code, features, part, normals, option, level, report } of people) {
    same("code", codeOf(map.fields, context), code);
    same("features", featuresOf(map.matrices, map.resolution, code), features);
    same("option by moments", picked(policy, features, part, normals), option);
    same("moments", momentsOf(features[option], 2 * level - levels), report);
  }
}

/** δ of Gaussian noise in vectors. */
export const vectorDeltas = async (_tacit, { cases }) => {
  const { vectorDelta, normalTail } = await import(MOMENTS);
  return cases.map(([sigma, square, numbers, epsilon]) => [vectorDelta(sigma, square, numbers, epsilon), normalTail(epsilon), normalTail(-epsilon)]);
};

/** Segments, options and cells of a table. */
async function choiceFailures(_tacit, { map, policy, people }, same) {
  const { segmentOf, chosen, cellOf } = await import(CONTEXTUAL);
  for (const { context, segment, drawn, option, success, cell } of people) {
    same("segment", segmentOf(map.fields, context), segment);
    same("option", chosen(policy.weights[segment], drawn), option);
    same("cell", cellOf(map.options.length, [segment, option, success]), cell);
  }
  return [];
}

async function twoServerFailures(tacit, known, streams, same) {
  const shown = await tacit.readTerms(known.terms);
  const [model, round] = [await tacit.modelOf(shown), await tacit.accept(shown, unhex(known.announcement))];
  same("context", hex(round.context), known.context);
  const keys = await Promise.all(known.servers.map((server) => privateKey(server.x25519)));
  for (const [number, values] of known.values.entries()) {
    const place = unhex(known.places[number]);
    const drawn = await model.encode(shown, round, { number, token: place.slice(4) }, values, from(unhex(streams[number])));
    for (const [role, half] of drawn.entries()) {
      const recipient = role ? round.key1 : round.key0;
      const theirs = unhex(known.halves[number][role]);
      same("front of a half", hex(half.slice(0, 41)), hex(theirs.slice(0, 41)));
      same("size of a half", half.length, theirs.length);
      for (const one of [half, theirs]) {
        same("half", hex(await open(tacit, one.slice(41), keys[role], recipient, info(round, role, place))), known.opened[number][role]);
      }
    }
  }
  return [];
}

/** Chi-squared statistics: of levels of 1/3, and of single numbers below 11. */
export async function draws(tacit, { count }) {
  const [levels, parts] = [[0, 0], Array(11).fill(0)];
  for (let n = 0; n < count; n++) {
    levels[tacit.level({ range: ["0", "1"], levels: 1 }, "1/3")] += 1;
    parts[Number(tacit.uniform(11n))] += 1;
  }
  const squared = (found, shares) => found.reduce((sum, number, place) => sum + (number - count * shares[place]) ** 2 / (count * shares[place]), 0);
  return { levels: squared(levels, [2 / 3, 1 / 3]), parts: squared(parts, Array(11).fill(1 / 11)) };
}

/** One participation with a storage that forgets and a clock that is set; the states it passed. */
export async function participate(tacit, { address, digest, pinned, start, answer }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  let now = start;
  const device = await tacit.Device.open(address, digest, { pinned, storage: memoryStorage(), now: () => now });
  const states = [await device.state(), await device.join(), await device.record(answer)];
  const [again] = await Promise.all([device.join(), device.join(), device.tick()]);
  states.push(again);
  now = again.sendsAt;
  await Promise.all([device.tick(), device.tick()]);
  return [...states, await device.state()];
}

/** Joins, joins again so many seconds later without a tick between, and records: the states. */
export async function later(tacit, { address, digest, pinned, start, answer, seconds }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  let now = start;
  const device = await tacit.Device.open(address, digest, { pinned, storage: memoryStorage(), now: () => now });
  const states = [await device.join()];
  now += 1000 * seconds;
  return [...states, await device.join(), await device.record(answer)];
}

/** What a participation costs: the ledger before and after its report was made, and the export. */
export async function charged(tacit, { address, digest, pinned, more }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  let now = Date.now();
  const accept = { obedientCoordinator: true };
  const device = await tacit.Device.open(address, digest, { pinned, accept, storage: memoryStorage(), now: () => now });
  const { sendsAt } = await device.join();
  const before = await device.ledger();
  now = sendsAt;
  await device.tick();
  const [after, exported] = [await device.ledger(), await device.exportLedger()];
  const other = await tacit.Device.open(address, digest, { pinned, accept, storage: memoryStorage() });
  await other.importLedger(exported);
  const copied = await other.ledger();
  await other.importLedger(more);
  const field = await other.join().catch((problem) => problem.field);
  return { before, after, copied, exported, field };
}

/** Limits and participations after each import, on a device that knows the terms. */
export async function imports(tacit, { address, digest, pinned, start, exports }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  const device = await tacit.Device.open(address, digest, { pinned, storage: memoryStorage(), now: () => start });
  const found = [await device.ledger()];
  for (const one of exports) {
    await device.importLedger(one);
    found.push(await device.ledger());
  }
  return found;
}

/** The limit in force, or the error's name, field and sentence, of devices opened with each of `options`. */
export async function opened(tacit, { address, digest, options }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  const one = async (more) => {
    const device = await tacit.Device.open(address, digest, { ...more, storage: memoryStorage() });
    return (await device.ledger()).ownLimit;
  };
  return Promise.all(options.map((more) => one(more).catch(({ name, field, message }) => [name, field ?? null, message])));
}

/** Two devices report in the same round; exports of each, then spending and exports after each took over all of `more` and the other's, twice. */
export async function together(tacit, { address, digest, pinned, start, more }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  let now = start;
  const opened = () => tacit.Device.open(address, digest, { pinned, storage: memoryStorage(), now: () => now });
  const devices = [await opened(), await opened()];
  const states = [];
  for (const device of devices) states.push(await device.join());
  now = Math.max(...states.map((state) => state.sendsAt));
  for (const device of devices) await device.tick();
  const exports = await Promise.all(devices.map((device) => device.exportLedger()));
  devices.push(await opened());
  for (const one of [...exports, ...more, ...exports]) for (const device of devices) await device.importLedger(one);
  return {
    exports,
    rounds: states.map((state) => state.round),
    again: (await devices[0].state()).stage,
    spending: await Promise.all(devices.map((device) => device.ledger())),
    merged: await Promise.all(devices.map((device) => device.exportLedger())),
  };
}

/** What the proofs' module makes of vectors of the VDAF draft and ours: names of what differs. */
export async function proofs(_tacit, { xofs, reports, histograms = [] }) {
  const prio3 = await import("../../clients/js/prio3.js");
  const wrong = [];
  for (const { name, seed, dst, binder, bytes } of xofs) {
    const found = prio3.stream(unhex(seed), unhex(dst), unhex(binder));
    const size = bytes.length / 2;
    if (hex(found(5)) + hex(found(size - 5)) !== bytes) wrong.push(name); // also in parts
  }
  for (const { name, limit, context, measurement, drawn, shares } of reports) {
    const about = limit === null ? prio3.PRIO3_COUNT : prio3.prio3Sum(limit);
    if (prio3.shard(about, unhex(context), measurement, unhex(drawn)).map(hex).join() !== shares.join()) wrong.push(name);
  }
  for (const { name, length, chunk, context, measurement, nonce, drawn, shares } of histograms) {
    const [common, parts] = prio3.histogram(length, unhex(context), measurement, unhex(nonce), unhex(drawn), chunk);
    if ([common, ...parts].map(hex).join() !== shares.join()) wrong.push(name);
  }
  for (const measurement of [-1, 7, 0.5, 2 ** 53, NaN, "1"]) {
    try {
      prio3.shard(prio3.prio3Sum(6), unhex("00"), measurement, new Uint8Array(prio3.RANDOM));
      wrong.push(`measurement ${measurement}`);
    } catch {}
  }
  const words = [prio3.MODULUS, 5n, 2n ** 64n - 1n, prio3.MODULUS - 1n, 7n, 8n]; // those beyond the field are skipped
  const word = (value) => new Uint8Array(new BigUint64Array([value]).buffer);
  const kept = prio3.expand(() => word(words.shift()), 3);
  if (`${kept}` !== `5,${prio3.MODULUS - 1n},7`) wrong.push("words beyond the field");
  return wrong;
}

/** δ of noise bits, as the shuffler's module computes it. */
export async function deltas(tacit, { cases }) {
  const { binomialDelta } = await tacit.modelOf({ trust: "shuffler" });
  return cases.map(({ bits, bias, shift, epsilon }) => binomialDelta(bits, bias, shift, epsilon));
}

/** How many ones each of many reports of a level has. */
export async function ones(tacit, { terms, announcement, level, count }) {
  const shown = await tacit.readTerms(terms);
  const [model, round] = [await tacit.modelOf(shown), await tacit.accept(shown, unhex(announcement))];
  const draw = (size) => crypto.getRandomValues(new Uint8Array(size));
  return Array.from({ length: count }, () => model.randomized(round, [level], draw).reduce((sum, bit) => sum + bit, 0));
}

/** Options that a device draws in each of these contexts, `count` times; the field of the refusal for those that are none. */
export async function choices(tacit, { terms, announcement, contexts, count }) {
  const shown = await tacit.readTerms(terms);
  const [model, round] = [await tacit.modelOf(shown), await tacit.accept(shown, unhex(announcement))];
  return contexts.map((context) => {
    try {
      return Array.from({ length: count }, () => model.choose(shown, round, context));
    } catch (problem) {
      return problem.field;
    }
  });
}

/** The cost of joining with each of these acceptances, or the field of the refusal. */
export async function joining(tacit, { terms, accepts }) {
  const shown = await tacit.readTerms(terms);
  const { cost } = await tacit.modelOf(shown);
  return accepts.map((accept) => {
    try {
      return `${cost(shown, null, accept)}`;
    } catch (problem) {
      return problem.field;
    }
  });
}

/** The stage after joining under servers that give these replies by the last part of the path, or the field of the refusal. */
export async function joined(tacit, { address, digest, pinned, start, replies, accepts }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  const fetch = async (url) => new Response(JSON.stringify(replies[new URL(url).pathname.split("/").at(-1)]));
  return Promise.all(accepts.map(async (accept) => {
    const device = await tacit.Device.open(address, digest, { pinned, accept, storage: memoryStorage(), fetch, now: () => start });
    return device.join().then(({ stage }) => stage, ({ field }) => field);
  }));
}

/** Invitations as the coordinator is shown them; null for those that are shown to nobody. */
export async function shownInvitations(tacit, { invitations }) {
  const { withoutSecret } = await tacit.hpke();
  return Promise.all(invitations.map((one) => withoutSecret(one).catch(({ field }) => (field === "invitation" ? null : field))));
}

/** The stage of a device that joins with each of these invitations in turn, or the field of the refusal. */
export async function invited(tacit, { address, digest, pinned, start, invitations }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  const device = await tacit.Device.open(address, digest, { pinned, storage: memoryStorage(), now: () => start });
  const found = [];
  for (const one of invitations) found.push(await device.join(one).then(({ stage }) => stage, ({ field }) => field));
  return found;
}

/** How many random bytes of the browser each of these reports takes, but for those of encryption; or the field of the refusal. */
export async function randomness(tacit, { reports }) {
  const found = [];
  for (const { terms, announcement, place, values } of reports) {
    const shown = await tacit.readTerms(terms);
    const [model, round] = [await tacit.modelOf(shown), await tacit.accept(shown, unhex(announcement))];
    const original = crypto.getRandomValues;
    let bytes = 0;
    Object.defineProperty(crypto, "getRandomValues", {
      configurable: true,
      value: (array) => ((bytes += array.byteLength), original.call(crypto, array)),
    });
    const report = async () => model.encode(shown, round, { number: 0, token: unhex(place).slice(4) }, values);
    found.push(await report().then(() => bytes, ({ field }) => field));
    delete crypto.getRandomValues;
  }
  return found;
}

/** Stage or field of the refusal, and the ledger, after each step of devices that share a ledger; servers give replies by path. */
export async function spending(tacit, { address, pinned, replies, outcomes, steps }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  const storage = memoryStorage();
  let now = 0;
  const fetch = async (url, { method }) => {
    const { host, pathname } = new URL(url);
    const [, kind, name, what] = pathname.split("/");
    if (method === "PUT") return new Response(null, { status: 204 });
    if (kind === "rounds") return outcomes[`${host} ${name}`] ? new Response(unhex(outcomes[`${host} ${name}`])) : new Response("", { status: 404 });
    const known = replies[`${name}/${what}`];
    return new Response(JSON.stringify(Array.isArray(known) ? known.shift() : known));
  };
  const found = [];
  for (const { at, digest, act, given, pinned: others = pinned } of steps) {
    now = at * 1000;
    const accept = { obedientCoordinator: true };
    let device;
    try {
      device = await tacit.Device.open(address, digest, { pinned: others, accept, storage, fetch, now: () => now });
    } catch ({ field, message }) {
      found.push([field ?? message, null]);
      continue;
    }
    const acts = {
      join: () => device.join(given),
      send: async () => ((now = (await device.state()).sendsAt), device.tick()),
      finish: async () => {
        const end = (await device.state()).deadline;
        for (let day = 0; day < 60; day++) (now = end + 60000 + 86400000 * day), await device.tick();
        return device.state();
      },
      withdraw: () => device.withdraw(),
      leave: () => {
        const { update } = storage; // another tab withdraws just before the first join writes
        storage.update = async (change) => ((storage.update = update), await device.withdraw(), update(change));
        return device.join(given);
      },
      agree: () => device.agree(),
      import: async () => (await device.importLedger(given), device.state()),
      limit: async () => (await device.setLimit(given), device.state()),
    };
    const said = await acts[act]().then(({ stage }) => stage, ({ field, message }) => field ?? message);
    const { spent, delta, pending, taken, participations, limit, ownSpent } = await device.ledger();
    found.push([said, { spent, delta, pending, taken, participations, limit, ownSpent }]);
  }
  const last = await tacit.Device.open(address, steps[0].digest, { pinned, storage, fetch, now: () => now }).catch(() => null);
  return { steps: found, exported: last && (await last.exportLedger()) };
}

/** How many bytes a device copies to read a reply that comes in many parts. */
export async function copied(tacit, { address, digest, pinned, parts, size }) {
  const { memoryStorage } = await import("../../clients/js/memory.js");
  const fetch = async () =>
    new Response(new ReadableStream({ start: (into) => (Array.from({ length: parts }, () => into.enqueue(new Uint8Array(size))), into.close()) }));
  const from = Uint8Array.from;
  let count = 0;
  Uint8Array.from = function (several, ...how) {
    count += several.length;
    return from.call(this, several, ...how);
  };
  await tacit.Device.open(address, digest, { pinned, storage: memoryStorage(), fetch }).catch(() => null);
  Uint8Array.from = from;
  return count;
}
