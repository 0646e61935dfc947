// Times in the reader's own way (the page has them in UTC), and when to try again.

const day = { month: "short", day: "numeric" };
const short = { ...day, hour: "2-digit", minute: "2-digit" };

/** Rewrites all times within an element. */
export function localize(within) {
  for (const one of within.querySelectorAll("time[datetime]")) {
    one.textContent = new Date(one.dateTime).toLocaleString(undefined, "daily" in one.dataset ? day : short);
  }
}

/** The time of day, with seconds. */
export const clock = (moment) => new Date(moment).toLocaleTimeString();

const PAUSES = [2, 5, 15, 30, 60]; // seconds

/** Milliseconds until the next attempt after so many failures, from half of a pause to all of it. */
export function pause(failures) {
  const [word] = crypto.getRandomValues(new Uint32Array(1));
  return 500 * PAUSES[Math.min(failures, PAUSES.length) - 1] * (1 + word / 2 ** 32);
}
