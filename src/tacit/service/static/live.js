// Keeps the experimenter's page up to date: parts that changed come as HTML that the coordinator has
// escaped, and take the place of the old ones. Nobody watches from a tab that nobody sees.

import { clock, localize, pause } from "./times.js";

const line = document.getElementById("live");
const told = document.getElementById("told");
let source = null, timer = 0, failures = 0, since = Date.now();

function say(state, words) {
  line.dataset.state = state;
  if (line.textContent !== words) line.textContent = words;
}

function replace(name, html) {
  const part = document.getElementById(name);
  if (!part) return;
  const places = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  const held = [...part.querySelectorAll(".scroll")].indexOf(document.activeElement);
  part.innerHTML = html;
  const now = [...part.querySelectorAll(".scroll")];
  now.forEach((one, n) => (one.scrollLeft = places[n] ?? 0));
  if (held >= 0) now[held]?.focus({ preventScroll: true });
  localize(part);
}

function changed(event) {
  const { parts, told: words } = JSON.parse(event.data);
  for (const [name, html] of Object.entries(parts)) replace(name, html);
  if (told.textContent !== words) told.textContent = words;
  line.dataset.seen = event.lastEventId;
  since = Date.now();
}

function lost() {
  const closed = source.readyState === EventSource.CLOSED;
  source.close();
  source = null;
  failures += 1;
  say("lost", `The coordinator does not answer. This was true at ${clock(since)}; it is tried again.`);
  timer = setTimeout(watch, pause(failures) * (closed ? 2 : 1));
}

function watch() {
  clearTimeout(timer);
  if (source || document.hidden) return;
  source = new EventSource(`${line.dataset.stream}?seen=${line.dataset.seen}`);
  source.onopen = () => {
    failures = 0;
    since = Date.now();
    say("live", "Live: this page follows the experiment by itself.");
  };
  source.onmessage = changed;
  source.onerror = lost;
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(timer);
  if (!document.hidden) return watch();
  timer = setTimeout(() => {
    source?.close();
    source = null;
  }, 20000);
});
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => {
  if (event.persisted) {
    source = null;
    watch();
  }
});

localize(document);
say("", "Connecting.");
watch();
