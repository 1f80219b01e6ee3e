// The window of a run's log that the page has: a long log is loaded around the place that a person looks at, and what is
// far from it is dropped.
import { fetchPage } from "./live.js";
import { append } from "./log.js";

// More items than this make a page slow.
const MOST = 3000;
// Whoever is further from the end than this doesn't want to see everything in between.
const FAR = 1000;

const panel = document.getElementById("log-panel");
const log = document.getElementById("log");
const cut = document.getElementById("log-cut");
const number = (name) => Number(panel.dataset[name]);

/// The first and last event that the page has, and the newest of the run.
export const seen = { first: number("first"), last: number("after"), newest: number("last") };

/// Whether the page has every event.
export const whole = () => seen.first <= 1 && seen.last >= seen.newest;
/// Whether the end of the log is far away.
export const far = () => seen.newest - seen.last > FAR;

let turn = 0;
async function load(query) {
  const own = ++turn;
  const page = await fetchPage(`${panel.dataset.log}?${query}`);
  const part = page?.getElementById("log-window");
  // Meanwhile the person went somewhere else.
  if (!part || own !== turn) return undefined;
  seen.newest = Math.max(seen.newest, Number(part.dataset.newest));
  return { items: [...document.importNode(part, true).children], first: Number(part.dataset.first), last: Number(part.dataset.last) };
}

function changed() {
  document.getElementById("log-more")?.remove();
  cut.hidden = seen.first <= 1;
}

/// Adds an item of the live stream.
export function add(seq, item) {
  seen.last = seq;
  seen.newest = Math.max(seen.newest, seq);
  append(log, item);
}

/// Drops what is too much, at the end that nobody looks at.
export function trim(following) {
  if (log.childElementCount <= MOST) return false;
  if (following) {
    while (log.childElementCount > MOST) log.firstElementChild.remove();
    seen.first = Number(log.firstElementChild.id.slice(1));
  } else {
    while (log.childElementCount > MOST) log.lastElementChild.remove();
    seen.last = Number(log.lastElementChild.dataset.seq);
  }
  changed();
  return true;
}

/// Loads what precedes the window. What is on the screen stays where it is.
export async function earlier() {
  if (seen.first <= 1) return;
  const part = await load(`before=${seen.first}`);
  if (!part) return;
  const anchor = log.firstElementChild;
  const top = anchor?.getBoundingClientRect().top ?? 0;
  log.prepend(...part.items);
  // What retention removed never comes.
  seen.first = part.items.length === 0 ? 1 : part.first;
  if (anchor) scrollBy({ top: anchor.getBoundingClientRect().top - top, behavior: "instant" });
  trim(false);
  changed();
}

/// Loads what follows the window.
export async function later() {
  if (seen.last >= seen.newest) return;
  const part = await load(`after=${seen.last}`);
  if (!part || part.items.length === 0) return;
  for (const item of part.items) append(log, item);
  seen.last = part.last;
  // What is on the screen stays where it is when the beginning goes.
  const anchor = log.lastElementChild;
  const top = anchor.getBoundingClientRect().top;
  if (trim(true)) scrollBy({ top: anchor.getBoundingClientRect().top - top, behavior: "instant" });
  changed();
}

async function replace(query) {
  const part = await load(query);
  if (!part || part.items.length === 0) return false;
  log.replaceChildren(...part.items);
  [seen.first, seen.last] = [part.first, part.last];
  changed();
  return true;
}

/// Goes to the end of the log.
export const latest = () => replace(`before=${Number.MAX_SAFE_INTEGER}`);

/// The item with an event, which is loaded if it isn't there yet.
export async function reach(seq) {
  if (seq < seen.first || seq > seen.last) {
    if (seq < 1 || !(await replace(`after=${Math.max(0, seq - 50)}`))) return undefined;
  }
  return [...log.children].find((item) => Number(item.dataset.seq) >= seq);
}
