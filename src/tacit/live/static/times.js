// Times in the reader's own way; the page has them in UTC.

const short = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };

/** Rewrites all times within an element. */
export function localize(within) {
  for (const one of within.querySelectorAll("time[datetime]")) {
    one.textContent = new Date(one.dateTime).toLocaleString(undefined, short);
  }
}

/** The time of day, with seconds. */
export const clock = (moment) => new Date(moment).toLocaleTimeString();
