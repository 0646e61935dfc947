// The participant's page: a device of tacit (tacit.js) for the participant who reads it. Which step is shown, and
// what is filled in, follows from the device's state alone, so that a reload or a second tab shows the same.

import { Device, Offline, Refused } from "./tacit.js";
import { clock, pause } from "./times.js";

const at = (id) => document.getElementById(id);
const about = at("about").dataset;
const now = at("now"), title = at("step"), told = at("told");
const STEPS = ["fresh", "unasked", "waiting", "sealed", "sent", "opened", "refused", "unknown", "missed", "withdrawn"];
const BEGINNINGS = ["fresh", "turned-down", "offline"];
let device = null, stop = null, step = "", state = null, failures = 0, timer = 0, held = false, context;

/** Shows a step; what was typed stays as long as the step does. */
function show(name, words = {}) {
  if (name !== step) {
    const template = at(`step-${name}`);
    const held = now.contains(document.activeElement) || document.activeElement === title;
    now.replaceChildren(template.content.cloneNode(true));
    title.textContent = template.dataset.title;
    for (const one of now.querySelectorAll("[id^=context-]")) one.value = context?.[one.name] ?? "";
    if (step) told.textContent = `${template.dataset.title} ${words.option ?? words.why ?? ""}`;
    if (held) title.focus({ preventScroll: true });
    if (!BEGINNINGS.includes(name) && (!step || BEGINNINGS.includes(step))) title.scrollIntoView();
    step = name;
  }
  for (const one of now.querySelectorAll("[data-say]")) {
    const text = words[one.dataset.say] ?? "";
    if (one.textContent !== text) one.textContent = text;
  }
}

function left(moment) {
  const seconds = Math.max(0, Math.ceil((moment - Date.now()) / 1000));
  const [size, name] = seconds >= 172800 ? [86400, "days"] : seconds >= 7200 ? [3600, "hours"] : seconds >= 120 ? [60, "minutes"] : [1, "seconds"];
  const count = Math.ceil(seconds / size);
  return `${count} ${count === 1 ? name.slice(0, -1) : name}`;
}

const when = (moment) => (moment - Date.now() > 43200000 ? new Date(moment).toLocaleString() : clock(moment));

function render(found) {
  state = found;
  if (!STEPS.includes(found.stage)) {
    return show("turned-down", { why: "This participation was given up: your own limit no longer has room for it." });
  }
  show(found.stage, {
    option: found.option ?? "",
    sends: found.sendsAt ? when(found.sendsAt) : "",
    left: found.sendsAt ? left(found.sendsAt) : "",
    deadline: found.deadline ? when(found.deadline) : "",
    recorded: found.recorded === null ? "" : `Kept on this device: ${inWords(found.recorded)}. Nothing has been sent.`,
    network: navigator.onLine ? "" : "This device is offline. It sends when it is back, until the deadline.",
  });
  receipt(found);
  ledger();
}

/** An answer as it was chosen: by its words, where there are any. */
function inWords(recorded) {
  const label = (value) => [...now.querySelectorAll("[data-label]")].find((one) => one.value === `${value}`)?.dataset.label ?? value;
  if (device.terms.answer.metrics.length === 1) return label(recorded);
  return Object.entries(JSON.parse(recorded)).map(([name, value]) => `${name}: ${label(value)}`).join(", ");
}

/** Exactly what left, to whom, and what became of it. */
function receipt({ stage, sent, charge }) {
  const gone = sent.length > 0;
  const nothing = stage === "fresh" ? "Nothing has left it." : "It asked for a slot with a random number; nothing about you has left it.";
  at("here").textContent = gone ? `${about.sent}, and nothing else about your answer. Cost: ε = ${charge ?? "0, given back"}.` : nothing;
  for (const lane of document.querySelectorAll("[data-lane]")) {
    const role = lane.dataset.lane;
    const half = sent.find((one) => one.party === role);
    lane.dataset.state = !half ? "" : half.acknowledged ? "taken" : "going";
    document.querySelector(`[data-bytes=${role}]`).textContent = half ? `${half.bytes.toLocaleString()} encrypted bytes` : "nothing yet";
    const fate = !half ? "–" : half.acknowledged ? "It has arrived." : half.refused ? `Not taken: ${half.refused}.` : "On its way; it is sent again until it arrives.";
    const node = document.querySelector(`[data-fate=${role}]`);
    node.textContent = half ? `${fate} SHA-256 ${half.digest.slice(0, 16)}…` : fate;
    if (half) node.title = half.digest;
  }
}

async function ledger() {
  const { spent, pending, limit } = await device.ledger();
  at("spent").textContent = `ε = ${spent} of ${limit}${pending === "0" ? "" : `, and ${pending} waits to be sent`}`;
}

/** Does what is due from now on, and shows what comes of it. */
function follow() {
  stop?.();
  failures = 0;
  held = false;
  stop = device.run((found) => held || render(found), (problem) => trouble(problem, open));
}

/** Stays until somebody acts or a server answers; what is due is done meanwhile. */
function trouble(problem, again) {
  clearTimeout(timer);
  held = true;
  if (problem instanceof Offline) {
    failures += 1;
    timer = setTimeout(again, pause(failures));
    return show("offline", { why: navigator.onLine ? "A server does not answer now." : "This device is offline." });
  }
  const why = problem instanceof Refused ? problem.message : `Something went wrong here: ${problem.message}`;
  show("turned-down", { why: sentence(why) });
}

const sentence = (words) => `${words.charAt(0).toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}`;

/** Checks the terms; nothing but their names is sent. */
async function open() {
  clearTimeout(timer);
  if (!globalThis.crypto?.subtle || !globalThis.indexedDB) return show("unable");
  try {
    const pinned = { coordinator: about.coordinator, helper: about.helper };
    const accept = { obedientCoordinator: true }; // the page says so above the button, and joins only after it
    device ??= await Device.open(about.address, about.digest, { pinned, accept });
  } catch (problem) {
    return trouble(problem, open);
  }
  if (device.terms.digest !== about.digest) return location.replace(`../${device.terms.digest}/take-part`);
  for (const id of ["export", "import"]) at(id).disabled = false;
  step = "";
  follow();
}

/** Joins; where the device chooses, by what the form says, which stays here. */
async function join(form) {
  if (form) context = Object.fromEntries(new FormData(form));
  const invitation = at("invitation")?.value.trim() || undefined;
  for (const button of now.querySelectorAll("button")) button.disabled = true;
  try {
    await device.agree(about.digest); // the terms on this page, also after others or a withdrawal
    await device.join(invitation, context);
    title.focus({ preventScroll: true });
    follow();
  } catch (problem) {
    trouble(problem, open);
  }
}

async function withdraw() {
  title.focus({ preventScroll: true });
  render(await device.withdraw());
}

async function record(form) {
  const values = Object.fromEntries(new FormData(form));
  const names = device.terms.answer.metrics;
  render(await device.record(names.length === 1 ? values[names[0]] : values));
}

const DO = { open, join, withdraw, record };
now.addEventListener("click", ({ target }) => target.matches("button") && DO[target.dataset.do]?.());
now.addEventListener("submit", (event) => {
  event.preventDefault();
  DO[event.target.dataset.do](event.target).catch((problem) => trouble(problem, open));
});

at("export").addEventListener("click", async () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([await device.exportLedger()], { type: "application/json" }));
  link.download = "tacit-ledger.json";
  link.click();
  URL.revokeObjectURL(link.href);
});
at("import").addEventListener("change", async (event) => {
  try {
    await device.importLedger(await event.target.files[0].text());
    at("ledger-said").textContent = "The copy was added: what was spent there counts here, too.";
    render(await device.state());
  } catch (problem) {
    at("ledger-said").textContent = sentence(problem.message);
  }
  event.target.value = "";
});

setInterval(() => state && STEPS.includes(step) && render(state), 1000);
addEventListener("online", () => step === "offline" && open());
addEventListener("pageshow", (event) => event.persisted && open());
const checking = now.querySelector(".needs-script");
if (checking) {
  checking.hidden = false;
  open();
} else title.textContent = now.querySelector(".not-now").dataset.title;
