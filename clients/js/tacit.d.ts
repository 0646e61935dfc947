// Types of tacit.js, and what each part does. How to use it: docs/how-to/browser.md.

/** The servers' long-term Ed25519 keys in hexadecimal digits, from a source that is no server; no helper with trust "local". */
export interface Pinned {
  coordinator: string;
  helper?: string;
}

export interface Options {
  pinned: Pinned;
  /** What the participant accepts beyond the terms. `obedientCoordinator`: protection only against a coordinator that follows the protocol, because any other could invent all other participants; needed where devices share the noise and admission is open. */
  accept?: { obedientCoordinator?: boolean };
  /** The participant's own limit of ε over all experiments of this origin: a whole number or a fraction such as "3/2". It only lowers the limit in force, "8" unless told; null lowers nothing. `setLimit` raises it or switches it off. */
  limit?: string | number | null;
  /** Name of the IndexedDB database, "tacit" unless told. All experiments of one participant belong into one. */
  database?: string;
  /** In the place of `browserStorage(database)`. */
  storage?: Storage;
  fetch?: typeof globalThis.fetch;
  /** Milliseconds since 1970. */
  now?: () => number;
}

/** The terms, as the document says them (docs/reference/wire-formats), with their digest and canonical spelling. */
export interface Terms {
  readonly digest: string;
  readonly spelling: string;
  readonly admission: "open" | "invitation";
  readonly aggregation: { readonly claim: "semi-honest"; readonly dishonest_count: number; readonly dishonest_fraction: string; readonly minimum_batch_size: number; readonly missing_fraction: string };
  readonly answer: { readonly labels: readonly string[]; readonly levels: number; readonly meaning: string; readonly metrics: readonly string[]; readonly range: readonly [string, string]; readonly window: number };
  readonly assumptions: readonly { readonly id: string; readonly count?: number; readonly of?: number }[];
  readonly contact: string;
  /** In contextual experiments only: what the device chooses by. */
  readonly context?: ContextTerms;
  readonly first_day: string;
  /** Seconds that round keys live after a round closes, at most 604800. */
  readonly grace: number;
  readonly guarantee: { readonly delta: string; readonly epsilon: string; readonly neighbours: "replace-one"; readonly participations: number; readonly view: "other-server" | "shuffled" | "message" };
  /** The Ed25519 key that signs invitations; empty where admission is open. */
  readonly issuer: string;
  readonly last_day: string;
  readonly no_show: string;
  readonly noise: { readonly by: "servers" | "devices"; readonly distribution: "discrete-laplace" | "randomized-response" | "binomial"; readonly minimum: readonly [number, number]; readonly scale: string; readonly share_divisor: "certain" };
  readonly options: readonly string[];
  readonly organisation: string;
  /** Coordinator and helper; analyzer and shuffler with trust "shuffler"; the coordinator alone with trust "local". */
  readonly parties: readonly [Party, Party] | readonly [Party];
  readonly predecessor: string;
  readonly proofs: 0 | 1;
  readonly purpose: string;
  readonly question: string;
  readonly suite: "hpke-x25519-aes128gcm";
  readonly trust: "two-servers" | "shuffler" | "local";
  readonly version: 3;
}

/** Fields of the context with their values, and the share of participants who get an option at random. */
export interface ContextTerms {
  readonly evaluation: string;
  readonly fields: readonly ({ readonly name: string; readonly values: readonly string[] } | { readonly name: string; readonly low: string; readonly high: string })[];
  readonly statistic: "table" | "moments";
  /** With moments: the feature map, in multiples of 2^-20, and the grid of features. */
  readonly matrices?: readonly (readonly (readonly number[])[])[];
  readonly resolution?: number;
}

/** The value of each field, such as { device: "phone", age: 35 }. */
export type Context = Record<string, string | number>;

export interface Party {
  readonly address: string;
  readonly key: string;
  readonly role: "coordinator" | "helper" | "analyzer" | "shuffler";
}

/** What can be recorded: a number, or its decimal digits, stands for the dyadic number that it is; "1/3" is exact. */
export type Value = number | boolean | string;

/**
 * fresh: no option yet. unasked: an option, nothing is reported. waiting: until the time of sending; the answer is on this
 * device only. sealed: charged and on its way. sent: both servers have their report shares. opened, refused, unknown: what became of
 * the round. missed: this device was not running between the time of sending and the deadline; nothing was sent or charged.
 * broken: a limit fell after joining; nothing was sent. withdrawn: the participant left.
 */
export type Stage = "fresh" | "unasked" | "waiting" | "sealed" | "sent" | "opened" | "refused" | "unknown" | "missed" | "broken" | "withdrawn";

/** The state of the participation, with the receipt of the last participation. */
export interface State {
  stage: Stage;
  option: string | null;
  round: string | null;
  /** What was recorded, as it was given; with several metrics, JSON by name. Forgotten when it is encrypted. */
  recorded: string | null;
  /** When the report shares are first sent, in milliseconds since 1970: fixed when joining. */
  sendsAt: number | null;
  deadline: number | null;
  /** The ε that is charged, as a fraction; null if nothing is (yet, or it was refunded). */
  charge: string | null;
  /** Exactly what is for whom: empty until it is encrypted. */
  sent: Half[];
}

export interface Half {
  party: Party["role"];
  address: string;
  bytes: number;
  /** SHA-256 of the encrypted bytes. */
  digest: string;
  acknowledged: boolean;
  /** Why the server will never take it; null if it did not say so. */
  refused: string | null;
}

/** ε as fractions: of this experiment and its successors, and (`own…`) of all experiments of this origin. */
export interface Spending {
  spent: string;
  /** δ that is charged in this experiment; "0" where the trust model has none. */
  delta: string;
  /** What was joined and is not charged yet. */
  pending: string;
  /** The smallest ε ever shown for these terms and their successors. */
  limit: string;
  /** Participations that were joined and not refunded, and how many the terms allow at most. */
  taken: number;
  participations: number;
  ownSpent: string;
  /** "8" unless another was set; null if it was switched off. */
  ownLimit: string | null;
  /** Experiments that share a party's key, by their digests, with the total ε of all of them. */
  parties: { keys: string[]; experiments: string[][]; spent: string }[];
}

/** Terms, a round or an answer that is not accepted. Nothing was charged or sent because of it. */
export class Refused extends Error {
  /** What is wrong: "agreement" (`terms` is to be shown, then `agree()`, because question, options, organisation or purpose changed or the participant left), "keys", "digest", "signatures", "noise", "window", "grace", "suite", "issuer", "participations", "epsilon", "limit", "refused", "answer", "context", "policy", "ledger" (of an older version), … */
  field: string;
}

/** A server cannot be asked at the moment: nothing is lost, try again later. */
export class Offline extends Error {}

export class Device {
  /** The last terms in the line of those that were asked for, checked; frozen. */
  readonly terms: Terms;

  /**
   * The experiment of the coordinator at this address, by the digest of its terms. Fetches the terms and their successors from
   * both servers (not if that was done within the hour; without a network, what is known is taken) and checks digest, canonical
   * form, pinned keys and signatures; throws `Refused` or `Offline`.
   */
  static open(address: string, digest: string, options: Options): Promise<Device>;

  /** Asks for a place, once; while it holds a second call sends nothing, also from another tab or after a reload. The round is
   * checked against the terms before anything is drawn. To join is to agree to `terms`, the first time. Where the terms have a
   * context, `context` is needed: the device draws the option by it and by the signed policy of the round, with the browser's own
   * randomness. It is kept on this device only, as the segment that it belongs to. */
  join(invitation?: string, context?: Context): Promise<State>;

  /** The participant was shown `terms` and takes part; needed where `join` was rejected with the field "agreement", so also after a withdrawal. Name the digest of the terms that were shown, if they may have been replaced. */
  agree(digest?: string): Promise<State>;

  /** Keeps what happened on this device, in the place of what was recorded before; sends nothing. It is rounded at random to a
   * level of the terms by an exact draw. With several metrics: numbers by name. */
  record(value: Value | Record<string, Value>): Promise<State>;

  /** Does what is due now for every participation of this origin: seals and charges, sends, asks for outcomes. Does nothing if
   * another tab is at it. */
  tick(): Promise<State>;

  /** Ticks by itself at the right times, and tells the state at least every two seconds (another tab may change it); returns a function that stops it. */
  run(onState: (state: State) => void, onError?: (problem: unknown) => void): () => void;

  /** Deletes what is unsent; nothing is refunded, and nothing is joined again before `agree()`. */
  withdraw(): Promise<State>;

  state(): Promise<State>;

  ledger(): Promise<Spending>;

  /** Sets the participant's own limit over all experiments of this origin; null for none. What is spent stays spent. */
  setLimit(limit: string | number | null): Promise<unknown>;

  /** What was spent, as JSON for another device of this participant (the same format as in Python): no answers, nothing encrypted. */
  exportLedger(): Promise<string>;

  /** Takes over what another device exported, all of it or nothing: limits only fall, charges only come to it. */
  importLedger(text: string): Promise<void>;
}

/** Where a device keeps its ledger, which is one document of plain data. If it fails, so does what was asked, and nothing is sent. */
export interface Storage {
  read(): Promise<any>;
  /** One transaction, atomic and durable over all tabs: `change` alters the document at once; if it throws, nothing changes. */
  update<T>(change: (ledger: any) => T): Promise<T>;
  /** Runs `work` while nobody else runs work of that name; if somebody does, waits, or gives null. */
  alone<T>(name: string, wait: boolean, work: () => Promise<T>): Promise<T | null>;
}

/** IndexedDB with Web Locks. */
export function browserStorage(name?: string): Storage;

// The parts, for test vectors and other clients

export interface Round {
  identity: string;
  terms: string;
  option: number;
  levels: number;
  window: number;
  closes: number;
  assignedUntil: number;
  grace: number;
  places: number;
  minimum: number;
  length: number;
  scale: [bigint, bigint];
  /** Where the device chooses: 4 bytes for each weight. */
  policy?: Uint8Array;
}
export interface Accepted extends Round {
  cost: [bigint, bigint];
  /** Seconds between the end of the last window and the deadline. */
  margin: number;
  context: Uint8Array;
}
type Draw = (size: number) => Uint8Array;

/** The terms that a text is the one spelling of. */
export function readTerms(spelling: string): Promise<Terms>;
/** Rejects what not both parties of the terms signed under a label such as "terms" or "round". */
export function checkSigned(terms: Terms, label: string, message: Uint8Array, signatures: Uint8Array[]): Promise<void>;
/** Rejects terms that do not succeed others, or promise less. */
export function checkSuccessor(old: Terms, next: Terms): void;
/** The round of an announcement that both parties signed and that keeps to the terms. */
export function accept(terms: Terms, announcement: Uint8Array): Promise<Accepted>;
/** Which server says what became of a round: 1 opened, 2 refused, 3 unknown (which is not signed). */
export function readOutcome(terms: Terms, round: Accepted, message: Uint8Array): Promise<[number, number]>;
/** The level below a value or the next, at random, so that on average it is the value. */
export function level(answer: { range: readonly [string, string]; levels: number }, value: Value, draw?: Draw): number;
/** The module of a trust model: two-servers.js, shuffler.js or local.js, wrapped by contextual.js or moments.js where the device chooses. It makes the report of each party from levels. */
export function modelOf(terms: { trust: string; context?: ContextTerms }): Promise<{
  /** Where the device chooses: the segment of the context or the features of the option, and the option that is drawn by the round's policy. */
  choose?(terms: Terms, round: Accepted, context: Context, draw?: Draw): number[];
  encode(terms: Terms, round: Accepted, place: { number: number; token: Uint8Array }, levels: number[]): Promise<(Uint8Array | null)[]>;
}>;
/** Uniform below a bound, exactly. */
export function uniform(bound: bigint, draw?: Draw): bigint;
/** The module hpke.js: HPKE in base mode, without associated data. */
export function hpke(): Promise<{
  /** Key and nonce from X25519's secret. */
  schedule(shared: Uint8Array, enc: Uint8Array, recipient: Uint8Array, info: Uint8Array): Promise<[Uint8Array, Uint8Array]>;
  seal(recipient: Uint8Array, info: Uint8Array, message: Uint8Array, pair?: CryptoKeyPair): Promise<Uint8Array>;
}>;
