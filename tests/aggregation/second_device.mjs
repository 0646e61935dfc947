// A device written a second time, with nothing but WebCrypto and docs/reference/wire-formats: it checks the terms and the
// announcement in a vector of two servers, and seals a report that Python's servers open. Reads JSON, writes JSON.
import { readFileSync } from "node:fs";

const { subtle } = globalThis.crypto;
const text = (string) => new TextEncoder().encode(string);
const unhex = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const join = (...parts) => Uint8Array.from(parts.flatMap((part) => Array.from(part)));
const sha256 = async (bytes) => new Uint8Array(await subtle.digest("SHA-256", bytes));
const big = (bytes) => bytes.reduce((number, byte) => number * 256n + BigInt(byte), 0n);
const spelt = (number, size) => unhex(number.toString(16).padStart(2 * size, "0"));

function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
}

async function signed(label, message, signature, key) {
  const imported = await subtle.importKey("raw", unhex(key), "Ed25519", false, ["verify"]);
  return subtle.verify("Ed25519", imported, signature, join(text(label), [0], message));
}

async function hmac(key, message) {
  const imported = await subtle.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await subtle.sign("HMAC", imported, message));
}

// HPKE (RFC 9180), base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM
const KEM = join(text("KEM"), [0, 0x20]);
const SUITE = join(text("HPKE"), [0, 0x20, 0, 1, 0, 1]);
const extract = (suite, salt, label, ikm) =>
  hmac(salt.length ? salt : new Uint8Array(32), join(text("HPKE-v1"), suite, text(label), ikm));
const expand = async (suite, prk, label, info, size) =>
  (await hmac(prk, join([0, size], text("HPKE-v1"), suite, text(label), info, [1]))).slice(0, size);

async function seal(recipient, info, message) {
  const pair = await subtle.generateKey("X25519", true, ["deriveBits"]);
  const enc = new Uint8Array(await subtle.exportKey("raw", pair.publicKey));
  const peer = await subtle.importKey("raw", recipient, "X25519", false, []);
  const shared = new Uint8Array(await subtle.deriveBits({ name: "X25519", public: peer }, pair.privateKey, 256));
  const none = new Uint8Array(0);
  const eae = await extract(KEM, none, "eae_prk", shared);
  const secret = await expand(KEM, eae, "shared_secret", join(enc, recipient), 32);
  const context = join([0], await extract(SUITE, none, "psk_id_hash", none), await extract(SUITE, none, "info_hash", info));
  const prk = await extract(SUITE, secret, "secret", none);
  const key = await subtle.importKey("raw", await expand(SUITE, prk, "key", context, 16), "AES-GCM", false, ["encrypt"]);
  const iv = await expand(SUITE, prk, "base_nonce", context, 12);
  return join(enc, new Uint8Array(await subtle.encrypt({ name: "AES-GCM", iv }, key, message)));
}

function read(bytes) {
  let at = 0;
  const take = (size) => bytes.slice(at, (at += size));
  const integer = () => big(take(Number(big(take(1)))));
  const round = { header: take(20), terms: take(32), option: big(take(2)), levels: big(take(4)), window: big(take(4)), closes: big(take(8)) };
  Object.assign(round, { assignedUntil: big(take(8)), grace: big(take(4)), places: big(take(4)), minimum: big(take(4)), length: big(take(4)) });
  Object.assign(round, { suite: take(1)[0], collector: take(32), servers: [take(64), take(64)] });
  Object.assign(round, { scale: [integer(), integer()], modulus: integer() });
  if (at !== bytes.length) throw new Error("the description is too long");
  return round;
}

const fraction = (string) => [...string.split("/"), "1"].slice(0, 2).map(BigInt);

async function main() {
  const given = JSON.parse(readFileSync(0, "utf8"));
  const document = JSON.parse(given.terms);
  const announcement = unhex(given.announcement);
  const [description, signatures] = [announcement.slice(0, -128), announcement.slice(-128)];
  const round = read(description);
  const [e, f] = fraction(document.guarantee.epsilon);
  const needed = round.levels * round.length * BigInt(document.guarantee.participations);
  const least = document.noise.minimum.map(BigInt);
  const keys = document.parties.map((party) => party.key);
  const checks = {
    canonical: canonical(document) === given.terms,
    digest: hex(await sha256(text(given.terms))) === hex(round.terms),
    terms: (await Promise.all(keys.map((key, n) => signed("tacit terms v2", text(given.terms), unhex(given.terms_signatures[n]), key)))).every(Boolean),
    round: (await Promise.all(keys.map((key, n) => signed("tacit round v2", description, signatures.slice(64 * n, 64 * n + 64), key)))).every(Boolean),
    levels: round.levels === BigInt(document.answer.levels) && round.length === BigInt(document.answer.metrics.length),
    window: round.window === BigInt(document.answer.window),
    minimum: round.minimum >= BigInt(document.aggregation.minimum_batch_size),
    grace: round.grace <= BigInt(document.grace),
    room: round.modulus > round.places * round.levels,
    noise: round.scale[0] * e >= needed * round.scale[1] * f && round.scale[0] * least[1] >= least[0] * round.scale[1],
    suite: round.suite === 3 && document.suite === "hpke-x25519-aes128gcm",
    version: document.version === 3,
  };
  const wrong = Object.keys(checks).filter((name) => !checks[name]);
  if (wrong.length) return { refused: wrong };
  const context = await sha256(description);
  const place = unhex(given.place);
  const size = Math.ceil((round.modulus - 1n).toString(2).length / 8);
  const parts = [[], []];
  for (const value of given.values) {
    // 64 bits more than the modulus has: off uniform by less than 2^-64
    const first = big(crypto.getRandomValues(new Uint8Array(size + 8))) % round.modulus;
    parts[0].push(spelt(first, size));
    parts[1].push(spelt((BigInt(value) - first + round.modulus) % round.modulus, size));
  }
  const words = [0, 1].map(() => crypto.getRandomValues(new Uint8Array(16)));
  const halves = [];
  for (const role of [0, 1]) {
    const digest = (await sha256(join(text("tacit word v2"), words[1 - role]))).slice(0, 16);
    const info = join(text("tacit half v2"), context, [role], place.slice(0, 4));
    const sealed = await seal(round.servers[role].slice(32), info, join(words[role], digest, ...parts[role]));
    halves.push(hex(join(description.slice(0, 3), [0x21], description.slice(4, 20), [role], place, sealed)));
  }
  return { halves };
}

process.stdout.write(JSON.stringify(await main()));
