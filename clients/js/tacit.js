// A device of tacit's live experiments: see tacit.d.ts, and docs/reference/wire-formats.

export class Refused extends Error {
  name = "Refused";
  constructor(field, sentence) {
    super(sentence);
    this.field = field;
  }
}
export class Offline extends Error {
  name = "Offline";
}

const must = (holds, field, sentence) => {
  if (!holds) throw new Refused(field, sentence);
  return holds;
};

// Bytes and numbers

const json = (text) => {
  try {
    return JSON.parse(text);
  } catch {}
};
const utf8 = (text) => new TextEncoder().encode(text);
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const unhex = (text, field) => {
  must(typeof text === "string" && /^([0-9a-f]{2})+$/i.test(text), field, `${field} ${text} is not hexadecimal`);
  return Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
};
const concat = (...parts) => Uint8Array.from(parts.flatMap((part) => [...part]));
const big = (bytes) => BigInt(`0x0${hex(bytes)}`);
const bits = (number) => number.toString(2).length;
const digits = (number, size) => unhex(number.toString(16).padStart(2 * size, "0"));
const settled = async (buffer) => new Uint8Array(await buffer);
const sha256 = (bytes) => settled(crypto.subtle.digest("SHA-256", bytes));
const imported = (key, algorithm, ...uses) => crypto.subtle.importKey("raw", key, algorithm, false, uses);
const random = (size) => crypto.getRandomValues(new Uint8Array(size));
const numberSize = (modulus) => Math.ceil(bits(modulus - 1n) / 8);
const limit = (size, bound) => (1n << BigInt(8 * size)) - ((1n << BigInt(8 * size)) % bound);

export function uniform(bound, draw = random) {
  const size = Math.ceil(bits(bound) / 8) + 8;
  for (;;) {
    const word = big(draw(size));
    if (word < limit(size, bound)) return word % bound;
  }
}

// Exact fractions, in lowest terms

const gcd = (a, b) => (b ? gcd(b, a % b) : a < 0n ? -a : a);
const ratio = (n, d = 1n) => [n / gcd(n, d), d / gcd(n, d)];
const plus = ([a, b], [c, d]) => ratio(a * d + c * b, b * d);
const minus = (a, [c, d]) => plus(a, [-c, d]);
const above = ([a, b], [c, d]) => a * d > c * b;
const lesser = (a, b) => (above(a, b) ? b : a);
const spell = ([n, d]) => (d === 1n ? `${n}` : `${n}/${d}`);
const parse = (text) => ratio(...text.split("/").map(BigInt));
const isFraction = (text) => typeof text === "string" && /^-?(0|[1-9]\d{0,39})(\/[1-9]\d{0,39})?$/.test(text) && spell(parse(text)) === text;
const ZERO = [0n, 1n];
const isPair = (pair) => Array.isArray(pair) && pair.length === 2 && pair.every((one) => Number.isSafeInteger(one) && one > 0) && gcd(...pair.map(BigInt)) === 1n;

const amount = (value) => must(/^\d{1,80}(\/[1-9]\d{0,79})?$/.test(value), "limit", `${value} is no fraction such as 3/2`) && spell(parse(value));

const given = (limit) => (limit === null ? null : amount(`${limit}`));

function exact(value) {
  if (isFraction(value)) return parse(value);
  must(typeof value !== "object" && `${value}`.trim() && Number.isFinite(+value), "answer", `${value} is no number`);
  let bottom = 1n; // doubles are dyadic
  for (value = +value; value % 1; value *= 2) bottom *= 2n;
  return ratio(BigInt(value), bottom);
}

// Terms

const plain = (value) => {
  if (typeof value === "string" && !/\p{Cs}/u.test(value)) return JSON.stringify(value);
  if (Number.isSafeInteger(value)) return `${value}`;
  if (Array.isArray(value)) return `[${value.map(plain)}]`;
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${plain(value[key])}`)}}`;
};
const seconds = (day) => Date.parse(`${day}T00:00:00Z`) / 1000;
const day = (value) => value >= "0001" && new Date(seconds(value) * 1000).toJSON() === `${value}T00:00:00.000Z`;
const like = (pattern) => (value) => typeof value === "string" && pattern.test(value);
const from = (least) => (value) => Number.isInteger(value) && value >= least && value < 2 ** 32;
const list = (fits) => (value) => Array.isArray(value) && value.length && new Set(value).size === value.length && value.every(fits);
const has = (shape) => (value) =>
  value instanceof Object && `${Object.keys(value)}` === `${Object.keys(shape)}` && Object.keys(shape).every((key) => shape[key](value[key]));
const is = (wanted) => (value) => value === wanted;
const text = like(/^(?!\p{White_Space})[^\p{Cc}\p{Cs}\u200e\u200f\u202a-\u202e\u2066-\u2069]+(?<!\p{White_Space})$/u);
const words = (value) => value === "" || text(value);
const SHAPE = {
  admission: like(/^(open|invitation)$/),
  aggregation: has({ claim: is("semi-honest"), dishonest_count: from(0), dishonest_fraction: isFraction, minimum_batch_size: from(1), missing_fraction: isFraction }),
  answer: has({ labels: (value) => plain(value) === "[]" || list(text)(value), levels: from(1), meaning: text, metrics: list(text), range: list(isFraction), window: from(0) }),
  assumptions: Array.isArray,
  contact: words,
  first_day: day,
  grace: (value) => from(0)(value) && value <= 604800,
  guarantee: has({ delta: isFraction, epsilon: isFraction, neighbours: is("replace-one"), participations: from(1), view: text }),
  issuer: like(/^([0-9a-f]{64})?$/),
  last_day: day,
  no_show: (value) => isFraction(value) && (([top, bottom]) => top >= 0n && top * 10n <= bottom * 9n)(parse(value)),
  noise: has({ by: text, distribution: text, minimum: isPair, scale: isFraction, share_divisor: is("certain") }),
  options: list(text),
  organisation: words,
  parties: list(has({ address: text, key: like(/^[0-9a-f]{64}$/), role: text })),
  predecessor: like(/^([0-9a-f]{64})?$/),
  proofs: from(0),
  purpose: words,
  question: text,
  suite: is("hpke-x25519-aes128gcm"),
  trust: text,
  version: is(3),
};

export async function readTerms(spelling) {
  let terms, canonical;
  const bytes = utf8(spelling);
  try {
    terms = JSON.parse(spelling);
    canonical = bytes.length <= 65536 && plain(terms) === spelling;
  } catch {}
  must(!canonical || terms?.version === 3, "version", `the terms have version ${terms?.version}, not 3: publish the experiment anew`);
  const { context, ...others } = canonical ? terms : {};
  must(`${Object.keys(others)}` === `${Object.keys(SHAPE)}`, "terms", "the terms are not in canonical form");
  for (const key in SHAPE) must(SHAPE[key](terms[key]), key, `this device does not support ${key} ${JSON.stringify(terms[key])}`);
  const { answer, guarantee, noise, parties, admission, issuer } = terms;
  const model = await modelOf(terms);
  const stated = model.stated(terms);
  const found = { ...terms, ...noise, ...guarantee, assumptions: plain(terms.assumptions), parties: `${parties.map((party) => party.role)}` };
  for (const key in stated) must(stated[key].includes(found[key]), key, `this device does not support ${key} ${found[key]} with trust ${terms.trust}`);
  must(new Set(parties.map((party) => party.key)).size === parties.length, "parties", "two parties have the same key");
  const [epsilon, scale, low, high] = [guarantee.epsilon, noise.scale, ...answer.range].map(parse);
  must(!issuer === (admission === "open"), "issuer", "an issuer is needed for invitations only");
  const least = noise.minimum.map(BigInt);
  const sound = above(epsilon, ZERO) && !above(least, scale) && answer.range.length === 2 && [0, answer.levels + 1].includes(answer.labels.length) && above(high, low) && terms.first_day <= terms.last_day;
  must(sound && model.sound(terms), "terms", "the terms contradict themselves");
  return Object.freeze({ ...terms, digest: hex(await sha256(bytes)), spelling });
}

const sensitivity = ({ answer }) => BigInt(answer.levels) * BigInt(answer.metrics.length);

// Nobody is missing or dishonest, and pure Laplace noise earns the guarantee.
const isPure = ({ aggregation: { dishonest_count, dishonest_fraction, missing_fraction }, guarantee, noise, answer }, moved = sensitivity({ answer })) => {
  const [[e, f], [top, bottom]] = [parse(guarantee.epsilon), noise.minimum.map(BigInt)];
  const earns = top * e >= moved * BigInt(guarantee.participations) * bottom * f;
  return `${[dishonest_count, dishonest_fraction, missing_fraction, guarantee.delta]}` === "0,0,0,0" && earns;
};

const verified = async (label, message, signature, key) =>
  crypto.subtle.verify("Ed25519", await imported(unhex(key), "Ed25519", "verify"), signature, concat(utf8(`tacit ${label} v2`), [0], message));

export async function checkSigned(terms, label, message, signatures) {
  for (const [place, { role, key }] of terms.parties.entries()) {
    must(signatures.length === terms.parties.length && (await verified(label, message, signatures[place], key)), "signatures", `the ${role} did not sign this ${label}`);
  }
}

function isWeaker(old, next) {
  const fixed = ({ answer, trust, proofs, noise, no_show, admission, issuer, context, options }) =>
    plain([answer, trust, proofs, noise.by, noise.distribution, no_show, noise.by === "devices" ? admission + issuer : "", context ? [context, options] : ""]);
  const promised = ({ guarantee, aggregation: { minimum_batch_size: batch, missing_fraction: missing, dishonest_count: count, dishonest_fraction: part }, noise, grace }) => [
    ...[guarantee.epsilon, guarantee.delta, `${guarantee.participations}`, `${grace}`, ...[batch, missing, count, part, noise.scale].map((one) => `-${one}`)].map(parse),
    minus(ZERO, noise.minimum.map(BigInt)),
  ];
  return fixed(next) !== fixed(old) || promised(next).some((value, place) => above(value, promised(old)[place]));
}

export function checkSuccessor(old, next) {
  must(next.predecessor === old.digest && !isWeaker(old, next), "successor", "these terms promise less than those before");
}

// Rounds

function reader(bytes) {
  let at = 0;
  const take = (size) => must(at + size <= bytes.length, "round", "the round is too short") && bytes.slice(at, (at += size));
  const integer = () => ((digits) => (digits[0] ? big(digits) : 0n))(take(take(1)[0]));
  const fraction = (top = integer(), bottom = integer()) =>
    must(top && bottom && gcd(top, bottom) === 1n && top < bottom << 1000n, "noise", "the round has no noise") && [top, bottom];
  const fields = (shape) => Object.fromEntries(Object.entries(shape).map(([name, size]) => [name, size < 9 ? Number(big(take(size))) : hex(take(size))]));
  return { take, integer, fraction, fields, over: () => at === bytes.length };
}
const FRONT = { kind: 4, identity: 16, terms: 32, option: 2, levels: 4, window: 4, closes: 8 };

export async function accept(terms, announcement) {
  const model = await modelOf(terms);
  const size = Math.max(announcement.length - 64 * terms.parties.length, 0);
  const description = announcement.slice(0, size);
  await checkSigned(terms, "round", description, terms.parties.map((_, role) => announcement.slice(size + 64 * role).slice(0, 64)));
  const read = reader(description);
  const round = model.read(read, read.fields(FRONT));
  must(read.over() && round.assignedUntil <= round.closes && round.levels && round.minimum && round.minimum <= round.places && round.length, "round", "the times or counts of the round are invalid");
  const { levels, metrics, window } = terms.answer;
  for (const [field, holds, found] of [
    ["terms", round.terms === terms.digest, round.terms],
    ["levels", round.levels === levels, round.levels],
    ["metrics", round.length === (round.numbers ?? metrics.length), round.length],
    ["window", round.window === window, round.window],
    ["option", round.policy || round.option < terms.options.length, round.option],
    ["minimum", round.minimum >= terms.aggregation.minimum_batch_size, round.minimum],
    ["grace", round.grace <= terms.grace, round.grace],
    ["deadline", seconds(terms.first_day) <= round.closes && round.closes < seconds(terms.last_day) + 86400, round.closes],
    ...model.checks(terms, round),
  ]) must(holds, field, `the round's ${field}, ${found}, is not what the terms promise`);
  return { ...round, cost: model.cost(terms, round.scale, 0, round), margin: round.closes - round.assignedUntil - window, context: await sha256(description) };
}

export async function readOutcome(terms, round, message) {
  const [role, said] = message.slice(20);
  const known = hex(message.slice(0, 20)) === `74610224${round.identity}` && role < terms.parties.length && said > 0 && said < 4;
  const signed = said === 3 ? message.length === 22 : known && (await verified("outcome", concat(round.context, [role, said]), message.slice(22), terms.parties[role].key));
  must(known && signed, "outcome", "the outcome is not signed, or of another round");
  return [role, said];
}

// Levels

export function level({ range, levels }, value, draw = random) {
  const [low, high] = range.map(parse);
  const number = exact(value);
  must(!above(low, number) && !above(number, high), "answer", `the answer ${value} does not lie from ${range.join(" to ")}`);
  const [[a, b], [c, d]] = [minus(number, low), minus(high, low)];
  const [top, bottom] = ratio(a * d * BigInt(levels), b * c);
  return Number(top / bottom) + (uniform(bottom, draw) < top % bottom ? 1 : 0);
}

function nothingHappened(answer) {
  const [low, high] = answer.range.map(parse);
  const zero = spell(above(low, ZERO) ? low : lesser(ZERO, high));
  return answer.metrics.map(() => level(answer, zero));
}

// Trust models, loaded where terms name them

const TOOLS = { must, unhex, utf8, concat, big, bits, digits, settled, sha256, imported, uniform, limit, numberSize, ratio, above, parse, spell, isPure, sensitivity, has, is, list, text, isFraction };
const MODULES = { "two-servers": () => import("./two-servers.js"), shuffler: () => import("./shuffler.js"), local: () => import("./local.js") };
export const hpke = async () => (await import("./hpke.js")).default(TOOLS);

export async function modelOf({ trust, context }) {
  must(Object.hasOwn(MODULES, trust), "trust", `this device does not support trust ${trust}`);
  const model = (await MODULES[trust]()).default({ ...TOOLS, ...(await hpke()) });
  if (context === undefined) return model;
  return (await (context?.statistic === "moments" ? import("./moments.js") : import("./contextual.js"))).default(TOOLS, model);
}

// The ledger: an entry's rounds are participations

const entryOf = ({ entries }, digest) => entries.find((entry) => digest in entry.terms);
const holder = ({ entries }, report) => entries.find((entry) => report in entry.rounds);
const part = () => Number(big(random(6))) / 2 ** 49; // of a margin, below a half
const total = (rounds, what = "cost") => rounds.reduce((sum, round) => plus(sum, parse(round[what] ?? "0")), ZERO);
const spent = (rounds, what) => spell(total(rounds.filter((round) => round.charged), what));
const deltaOf = ({ delta, participations }) => ((pair) => ratio(pair[0], pair[1] * BigInt(participations)))(parse(delta));
const roundsOf = (...entries) => entries.flatMap((entry) => Object.values(entry.rounds));
const counted = (entry) => Object.values(entry.rounds).filter((round) => round.charged || !round.outcome);
const least = (...limits) => spell(limits.map(parse).reduce(lesser));
const ownOf = ({ own }) => (own === undefined ? "8" : own); // of ε over all experiments; null: none
const lower = (one, other) => (one === null || other === null ? one ?? other : least(one, other));

const keysOf = ({ parties }) => parties.map(({ key }) => key);

// A digest is known under other keys, and nobody signed that these terms belong to it
function ofOthers(ledger, terms, digest) {
  const [entry, own] = [entryOf(ledger, digest), entryOf(ledger, terms.digest)];
  return !!entry?.keys.length && !own?.terms[terms.digest]?.approved && !keysOf(terms).every((key) => entry.keys.includes(key));
}

function united(ledger, digests, epsilon, participations, keys) {
  const found = ledger.entries.filter((entry) => digests.some((digest) => digest in entry.terms));
  const entry = found[0] ?? { option: null, until: 0, asked: null, nonce: null, keys: [], terms: {}, rounds: {} };
  for (const other of found) {
    epsilon = least(epsilon, other.epsilon);
    participations = Math.min(participations, other.participations);
    keys = [...keys, ...other.keys];
    entry.withdrawn ||= other.withdrawn;
    Object.assign(entry.terms, other.terms);
    Object.assign(entry.rounds, other.rounds);
  }
  for (const digest of digests) entry.terms[digest] ??= null;
  ledger.entries = [...ledger.entries.filter((one) => !found.includes(one)), entry];
  return Object.assign(entry, { epsilon, participations, keys: [...new Set(keys)].sort() });
}

function lastOf(entry, digest) {
  const after = Object.entries(entry.terms).find(([, row]) => row?.approved && JSON.parse(row.text).predecessor === digest);
  return after ? lastOf(entry, after[0]) : digest;
}

function checkRoom(ledger, entry, cost, delta, besides) {
  const [own, others] = [ownOf(ledger), (one) => counted(one).filter((round) => round !== besides)];
  const beyond = (rounds, limit) => above(plus(cost, total(rounds)), parse(limit));
  must(others(entry).length < entry.participations, "participations", `this device took part ${entry.participations} times, as often as the terms allow`);
  must(!beyond(others(entry), entry.epsilon), "epsilon", "one more round exceeds the privacy budget of the terms");
  const allowed = least(...Object.values(entry.terms).filter(Boolean).map((row) => JSON.parse(row.text).guarantee.delta));
  must(!above(plus(delta, total(others(entry), "delta")), parse(allowed)), "delta", "one more round exceeds the δ of the terms");
  must(own === null || !beyond(ledger.entries.flatMap(others), own), "limit", `one more round is beyond your own limit of ${own} over all experiments`);
}

// Account and receipt are kept.
function end(round, outcome) {
  if (round.outcome) return;
  Object.assign(round, { outcome, announcement: null, place: null, invitation: null, levels: null, recorded: null });
  for (const post of round.posts) post.sealed = null;
}

export function browserStorage(name = "tacit") {
  const database = new Promise((done, fail) => {
    const asked = indexedDB.open(name, 2);
    asked.onupgradeneeded = ({ oldVersion }) => {
      if (!oldVersion) return asked.result.createObjectStore("ledger");
      fail(new Refused("ledger", `the ledger in this browser has format ${oldVersion}, not 2: use the version of tacit that wrote it`));
      asked.transaction.abort();
    };
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => fail(asked.error);
  });
  const transact = async (change) => {
    const transaction = (await database).transaction("ledger", change ? "readwrite" : "readonly", { durability: "strict" });
    const store = transaction.objectStore("ledger");
    return new Promise((done, fail) => {
      let result, problem;
      transaction.oncomplete = () => done(result);
      transaction.onabort = () => fail(problem ?? transaction.error);
      store.get(0).onsuccess = ({ target }) => {
        const ledger = target.result ?? { entries: [] };
        try {
          result = change ? change(ledger) : ledger;
          if (change) store.put(ledger, 0);
        } catch (error) {
          problem = error;
          transaction.abort();
        }
      };
    });
  };
  return {
    read: () => transact(),
    update: transact,
    alone: (what, wait, work) => navigator.locks.request(`${name} ${what}`, { ifAvailable: !wait }, (lock) => lock && work()),
  };
}

const copies = async () => (await import("./copies.js")).default({ must, hex, unhex, given, amount, ownOf, lower, united, holder, above, spell, total, counted });
const MOST = 1 << 20; // bytes of a reply
const asking = (post) => !post.said && post.outcome[0] < 20;
const under = (address, path) => address.replace(/\/*$/, path);

export class Device {
  #address; #digest; #pins; #accept; #fetch; #now; #storage;

  static async open(address, digest, { pinned = {}, accept = {}, limit, database, storage, fetch = globalThis.fetch, now = Date.now } = {}) {
    must(globalThis.crypto?.subtle, "context", "this page is not from https");
    const device = new Device();
    device.#address = address;
    device.#digest = hex(unhex(digest, "digest"));
    device.#pins = [pinned.coordinator, pinned.helper].filter(Boolean).map((key) => hex(unhex(key, "pinned key")));
    device.#accept = accept;
    device.#fetch = fetch;
    device.#now = () => now() / 1000;
    device.#storage = storage ?? browserStorage(database);
    if (limit !== undefined) await device.#storage.update((ledger) => (ledger.own = lower(given(limit), ownOf(ledger))));
    await device.#refresh(true);
    return device;
  }

  setLimit(limit) {
    return this.#storage.update((ledger) => (ledger.own = given(limit)));
  }

  async #ask(url, method, body, headers) {
    try {
      if (!/^https?:/.test(url)) return [0];
      const reply = await (0, this.#fetch)(url, {
        method, body, headers, signal: AbortSignal.timeout(10000),
        credentials: "omit", redirect: "error", referrerPolicy: "no-referrer", cache: "no-store",
      });
      const [reader, parts] = [reply.body?.getReader(), []];
      for (let chunk, size = 0; (chunk = (await reader?.read())?.value); parts.push(chunk)) {
        if ((size += chunk.length) > MOST) return reader.cancel(), [0];
      }
      return [reply.status, concat(...parts)];
    } catch {
      return [0];
    }
  }

  async #document(who, ...request) {
    const [status, bytes] = await this.#ask(...request);
    const found = json(new TextDecoder().decode(bytes));
    const said = `${who} ${status ? `says: ${`${found?.error ?? status}`.replace(/\p{C}/gu, "").slice(0, 300)}` : "does not answer"}`;
    if (!status || status === 429 || status >= 500) throw new Offline(`${said}; try again later`);
    must(status < 300 && found instanceof Object, status === 409 ? "succeeded" : "server", said);
    return found;
  }

  async #copy(who, address, digest) {
    const listed = (signatures) => must(Array.isArray(signatures), "signatures", `${who} gave no signatures`) && signatures.map((one) => unhex(one, "signature"));
    const read = async (copy) => ({ terms: await readTerms(`${copy.terms}`), signatures: listed(copy.signatures), approvals: listed(copy.approvals ?? []) });
    const found = await this.#document(who, under(address, `/experiments/${digest}/terms`), "GET");
    const copy = { ...(await read(found)), state: `${found.state}`, successor: found.successor && (await read(found.successor)) };
    must(copy.terms.digest === digest, "digest", `${who} gave other terms`);
    return copy;
  }

  async #fetchLine() {
    let one = await this.#copy("the coordinator", this.#address, this.#digest);
    must(`${one.terms.parties.map((party) => party.key)}` === `${this.#pins}`, "keys", "the terms name other keys than pinned");
    await checkSigned(one.terms, "terms", utf8(one.terms.spelling), one.signatures);
    const known = await this.#storage.read();
    const before = entryOf(known, one.terms.predecessor)?.terms[one.terms.predecessor];
    if (before) checkSuccessor(await readTerms(before.text), one.terms);
    must(!before || !ofOthers(known, one.terms, one.terms.predecessor), "predecessor", "these terms follow terms of other parties, who did not sign them");
    const line = [];
    for (let next = one; next; one = next && (await this.#copy("the coordinator", next.terms.parties[0].address, next.terms.digest))) {
      const { terms } = one;
      const other = terms.parties[1] && (await this.#copy("the helper", terms.parties[1].address, terms.digest));
      next = one.successor ?? other?.successor;
      const agree = !other?.successor || other.successor.terms.digest === next.terms.digest;
      must(agree && line.push(one) <= 16, "successor", "the servers name different successors");
      if (!next) break;
      checkSuccessor(terms, next.terms);
      await checkSigned(terms, "successor terms", utf8(next.terms.spelling), next.approvals);
      await checkSigned(next.terms, "terms", utf8(next.terms.spelling), next.signatures);
    }
    await this.#storage.update((ledger) => {
      for (const { terms, state } of line) {
        const { epsilon, participations } = terms.guarantee;
        const others = (digest) => terms === line[0].terms && ofOthers(ledger, terms, digest);
        if (others(terms.digest)) delete entryOf(ledger, terms.digest).terms[terms.digest]; // others named them first
        const named = [terms.digest, terms.predecessor].filter((digest) => digest && !others(digest));
        const entry = united(ledger, named, epsilon, participations, keysOf(terms));
        entry.terms[terms.digest] = { ...entry.terms[terms.digest], text: terms.spelling, state, checked: this.#now() };
        if (terms !== line[0].terms) entry.terms[terms.digest].approved = true;
      }
    });
  }

  async #refresh(opening, anew) {
    const look = async () => {
      const entry = entryOf(await this.#storage.read(), this.#digest);
      const named = entry?.terms[this.#digest];
      if (!named || `${JSON.parse(named.text).parties.map((party) => party.key)}` !== `${this.#pins}`) return null;
      const row = entry.terms[lastOf(entry, this.#digest)];
      this.terms = await readTerms(row.text);
      return { entry, row, age: this.#now() - row.checked };
    };
    const known = await look();
    if (known?.age >= 0 && known.age < 3600 && !anew) return known;
    try {
      await this.#fetchLine();
    } catch (problem) {
      if (opening && known && problem instanceof Offline) return known;
      throw problem;
    }
    return look();
  }

  async agree(digest = this.terms.digest) {
    await this.#storage.update((ledger) => {
      const entry = entryOf(ledger, digest);
      if (entry.withdrawn) entry.asked = null;
      entry.withdrawn = false;
      entry.terms[digest].agreed = true;
    });
    return this.state();
  }

  join(invitation, context) {
    return this.#storage.alone("join", true, () => this.#join(invitation, context));
  }

  async #join(invitation, context, anew) {
    const shown = this.terms;
    const held = entryOf(await this.#storage.read(), this.#digest);
    if (held.option !== null && this.#now() < held.until) return this.state();
    const { entry, row } = await this.#refresh(false, anew);
    const { terms } = this;
    const model = await modelOf(terms);
    model.segment?.(terms, context);
    const agreed = Object.values(entry.terms).filter((one) => one?.agreed).map((one) => JSON.parse(one.text));
    if (!agreed.length && !entry.withdrawn) {
      await this.#storage.update((ledger) => (entryOf(ledger, shown.digest).terms[shown.digest].agreed = true));
      agreed.push(shown);
    }
    const said = ({ question, options, organisation, purpose }) => plain([question, options, organisation, purpose]);
    must(!entry.withdrawn && agreed.some((old) => said(old) === said(terms) && !isWeaker(old, terms)), "agreement", "these terms were not agreed to on this device");
    const vain = roundsOf(entry).filter((round) => !round.outcome || /refused|unknown/.test(round.outcome));
    must(new Set(vain.map((round) => round.identity)).size < 3, "refused", "three rounds were aborted: this device joins no more");
    const { isInvitation, withoutSecret } = await hpke();
    must(invitation ? isInvitation(invitation) : terms.admission === "open", "invitation", "an invitation is needed, as it was given");
    const cost = model.cost(terms, parse(terms.noise.scale), this.#accept);
    try {
      checkRoom(await this.#storage.read(), entry, cost, deltaOf(terms.guarantee));
    } catch (problem) {
      if (/^(running|paused)$/.test(row.state)) {
        must(terms.options.includes(entry.option), problem.field, problem.message);
        return this.state();
      }
    }
    const now = this.#now();
    const fresh = hex(random(16));
    const nonce = await this.#storage.update((ledger) => (entryOf(ledger, terms.digest).nonce ??= fresh));
    try {
      const body = JSON.stringify(invitation ? { nonce, invitation: await withoutSecret(invitation) } : { nonce });
      const url = under(terms.parties[0].address, `/experiments/${terms.digest}/places`);
      const place = await this.#document("the coordinator", url, "POST", body, { "Content-Type": "application/json" });
      await this.#placed(model, terms, place, now, invitation, context);
    } catch (problem) {
      if (problem instanceof Refused) {
        if (problem.field === "succeeded" && !anew) return this.#join(invitation, context, true);
        await this.#storage.update((ledger) => (entryOf(ledger, terms.digest).nonce = null));
      }
      throw problem;
    }
    return this.state();
  }

  // All is checked before anything is drawn.
  async #placed(model, terms, { option, asked, announcement, place, token }, joined, invitation, context) {
    const chooses = option === null && model.choose;
    let round, report = null, levels = [];
    if (asked || chooses) {
      announcement = unhex(announcement, "announcement");
      round = await accept(terms, announcement);
    }
    const known = chooses ? round.policy : terms.options.includes(option) && (!asked || terms.options[round.option] === option);
    must(typeof asked === "boolean" && known, "option", "the coordinator gave an unknown option");
    if (asked) {
      token = unhex(token, "token");
      must(Math.floor(joined) <= round.assignedUntil && round.margin >= 1, "time", "this round leaves no time to report");
      must(Number.isInteger(place) && place >= 0 && place < round.places && token.length === 16, "place", "the slot is not one of the round's");
    }
    await this.#storage.update((ledger) => {
      const entry = entryOf(ledger, terms.digest);
      if (joined < entry.until || entry.withdrawn) return; // another tab was faster
      if (asked) {
        must(!roundsOf(...ledger.entries).some((one) => one.identity === round.identity), "round", "this device has joined this round before");
        checkRoom(ledger, entry, round.cost, deltaOf(terms.guarantee));
      }
      if (chooses) option = terms.options[(levels = chooses(terms, round, context)).at(-1)];
      if (asked) {
        report = hex(random(16));
        const [sends, asks] = [joined + round.window + part() * round.margin, round.closes + part() * round.margin];
        entry.rounds[report] = {
          report, identity: round.identity, terms: terms.digest, option, announcement, place: { number: place, token }, invitation,
          sends, asks, closes: round.closes, cost: spell(round.cost), delta: spell(deltaOf(terms.guarantee)),
          levels: [...levels, ...nothingHappened(terms.answer)], recorded: null, charged: false, outcome: null, posts: [],
        };
      }
      Object.assign(entry, { option, until: asked ? round.closes : joined + Math.max(terms.answer.window, 60), asked: report, nonce: null });
    });
  }

  async record(value) {
    const { answer } = this.terms;
    const several = value instanceof Object || answer.metrics.length > 1;
    const given = several ? Object.entries(value ?? {}) : [[answer.metrics[0], value]];
    must(given.length && given.every(([name]) => answer.metrics.includes(name)), "answer", `record numbers for ${answer.metrics} by name`);
    const levels = given.map(([name, one]) => [answer.metrics.indexOf(name), level(answer, one)]);
    await this.#storage.update((ledger) => {
      const { rounds, asked } = entryOf(ledger, this.#digest);
      const waiting = rounds[asked];
      if (!waiting?.levels) return;
      for (const [metric, one] of levels) waiting.levels.splice(metric - answer.metrics.length, 1, one);
      waiting.recorded = several ? JSON.stringify({ ...JSON.parse(waiting.recorded), ...value }) : `${value}`;
    });
    return this.state();
  }

  async tick() {
    await this.#work();
    return this.state();
  }

  run(onState, onError = () => {}) {
    let timer;
    const go = async () => {
      const due = await this.#work().catch(onError);
      const state = await this.state().catch(onError);
      if (!timer) return;
      timer = setTimeout(go, due ? Math.min(Math.max((due - this.#now()) * 1000, 20), 2000) : 2000);
      if (state) onState(state);
    };
    timer = setTimeout(go);
    return () => (timer = clearTimeout(timer));
  }

  #work() {
    return this.#storage.alone("report", false, async () => {
      const { entries } = await this.#storage.read();
      const running = roundsOf(...entries).filter((round) => !round.outcome);
      return Math.min(...(await Promise.all(running.map((round) => this.#advance(round, entryOf({ entries }, round.terms))))));
    });
  }

  #change(report, change) {
    return this.#storage.update((ledger) => {
      const entry = holder(ledger, report);
      return change(entry.rounds[report], entry, ledger);
    });
  }

  async #advance(row, entry) {
    try {
      return await this.#step(row, entry);
    } catch (problem) {
      if (!(problem instanceof Refused)) throw problem;
      return this.#change(row.report, (one) => end(one, "broken") ?? Infinity);
    }
  }

  async #step(row, entry) {
    const { report } = row;
    const terms = await readTerms(entry.terms[row.terms].text);
    const round = await accept(terms, row.announcement);
    if (row.levels) {
      if (this.#now() < row.sends) return row.sends;
      if (this.#now() < row.closes) row = await this.#sealed(terms, round, row);
      else await this.#change(report, (one) => end(one, "missed"));
    }
    const open = this.#now() < row.closes;
    const what = open ? "report" : "outcome";
    const dues = await Promise.all(row.posts.map(async (post, role) => {
      if (open ? !post.sealed : !asking(post)) return open ? row.asks : Infinity;
      const [count, due] = post[what];
      const now = this.#now();
      if (due > now) return Math.min(due, open ? row.asks : due);
      const pause = Math.min(Math.min(Math.max(round.margin / 64, 0.05), 30) * 2 ** count, 86400);
      const mine = await this.#change(report, ({ outcome, posts }) => {
        if (!outcome && posts[role][what][0] === count) return (posts[role][what] = [count + 1, now + pause * (0.5 + part())]);
      });
      const news = mine && (await (open ? this.#send(post, row, role) : this.#question(terms, round, post, role)));
      if (news) await this.#change(report, (one) => Object.assign(one.posts[role], news));
      return now;
    }));
    if (!open) await this.#change(report, settle);
    return Math.min(...dues, open && row.levels ? 0 : Infinity);
  }

  // Charged when both are stored, before anything is sent.
  async #sealed(terms, round, row) {
    const halves = await (await modelOf(terms)).encode(terms, round, row.place, row.levels);
    const posts = await Promise.all(terms.parties.map(async ({ role: party, address }, role) => {
      const sealed = halves[role] ?? null; // null: a party that gets none, and says what became of the round
      return {
        party, address, bytes: sealed?.length, digest: sealed && hex(await sha256(sealed)), sealed, acknowledged: !sealed, refused: null, said: null,
        report: [0, row.sends], outcome: [0, row.asks],
      };
    }));
    return this.#change(row.report, (one, entry, ledger) => {
      if (one.outcome || `${one.levels}` !== `${row.levels}`) return { ...one, posts: [] }; // another tab was faster
      checkRoom(ledger, entry, parse(one.cost), parse(one.delta ?? "0"), one);
      return Object.assign(one, { charged: true, levels: null, recorded: null, posts });
    });
  }

  async #send({ address, sealed }, { identity, place, invitation }, role) {
    if (invitation && !role) invitation = await (await hpke()).withoutSecret(invitation);
    const headers = { "Content-Type": "application/octet-stream", ...(invitation && { "Tacit-Invitation": invitation }) };
    const [status] = await this.#ask(under(address, `/rounds/${identity}/reports/${place.number}`), "PUT", sealed, headers);
    if (status >= 200 && status < 300) return { sealed: null, acknowledged: true };
    return [403, 409, 410, 413, 422].includes(status) && { sealed: null, refused: `status ${status}` };
  }

  async #question(terms, round, { address }, role) {
    const [status, bytes] = await this.#ask(under(address, `/rounds/${round.identity}/outcome`), "GET");
    const [who, said] = status === 200 ? await readOutcome(terms, round, bytes).catch(() => []) : [];
    return who === role && said < 3 && { said };
  }

  async withdraw() {
    await this.#storage.update((ledger) => {
      const entry = entryOf(ledger, this.#digest);
      roundsOf(entry).forEach((round) => end(round, "withdrawn"));
      Object.assign(entry, { withdrawn: true, option: null, until: 0, nonce: null });
    });
    return this.state();
  }

  async state() {
    const { rounds, asked, option, withdrawn } = entryOf(await this.#storage.read(), this.#digest);
    const state = shown(rounds[asked]);
    if (withdrawn) return { ...state, stage: "withdrawn", option: null };
    return asked ? state : { ...state, stage: option ? "unasked" : "fresh", option };
  }

  async ledger() {
    const ledger = await this.#storage.read();
    const { entries } = ledger;
    const entry = entryOf(ledger, this.#digest);
    const pending = spell(total(roundsOf(entry).filter((round) => !round.charged && !round.outcome)));
    return {
      spent: spent(roundsOf(entry)), delta: spent(roundsOf(entry), "delta"), pending, limit: entry.epsilon, taken: counted(entry).length, participations: entry.participations,
      ownSpent: spent(roundsOf(...entries)), ownLimit: ownOf(ledger), parties: (await copies()).grouped(entries),
    };
  }

  async exportLedger() {
    return (await copies()).exported(await this.#storage.read());
  }

  async importLedger(text) {
    const { merge } = await copies();
    try {
      await this.#storage.update((ledger) => merge(ledger, text));
    } catch (problem) {
      throw new Refused("export", `this is no export of a ledger: ${problem.message}`);
    }
  }
}

// A refund needs the word of two servers.
function settle(round) {
  if (round.outcome) return;
  const said = round.posts.map((post) => (post.sealed = null, post.said));
  if (!said.includes(1) && round.posts.some(asking)) return;
  if (said.length === 2 && said.every((word) => word === 2)) round.charged = false;
  end(round, said.includes(1) ? "opened" : said.includes(2) ? "refused" : "unknown");
}

function shown({ identity: round = null, posts = [], levels, outcome, option = null, recorded = null, sends, closes, cost, charged } = {}) {
  const sent = posts.filter((post) => post.bytes).map(({ party, address, bytes, digest, acknowledged, refused }) => ({ party, address, bytes, digest, acknowledged, refused }));
  const stage = outcome ?? (levels ? "waiting" : sent.every((post) => post.acknowledged) ? "sent" : "sealed");
  return {
    stage, option, round, recorded, sent, charge: charged ? cost : null,
    sendsAt: sends ? Math.ceil(sends * 1000) : null, deadline: closes ? closes * 1000 : null,
  };
}
