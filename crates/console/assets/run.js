// The run page: appends the live log without scroll jumps, loads the parts of a long one that a person goes to, refreshes the
// parts around it and searches it.
import { fetchPage, swap } from "./live.js";
import { add, earlier, far, later, latest, reach, seen, trim, whole } from "./log_window.js";

const panel = document.getElementById("log-panel");
const log = document.getElementById("log");
const foot = document.getElementById("follow");
const line = foot.querySelector("[role=status]");
const button = foot.querySelector("button");

let ended = panel.dataset.ended === "true";
// Whether the page has everything up to the end.
let complete = ended && seen.last >= seen.newest;
let following = true;
let source;
let queue = [];
let frame;

// --- the stream

function open() {
  if (source || complete || document.hidden || far()) return;
  source = new EventSource(`${panel.dataset.stream}?after=${seen.last}`);
  source.addEventListener("open", () => state());
  source.addEventListener("item", (event) => {
    queue.push(event);
    frame ??= requestAnimationFrame(flush);
  });
  source.addEventListener("changed", soon);
  source.addEventListener("end", () => {
    flush();
    shut();
    ended = complete = true;
    state();
    soon();
  });
  source.addEventListener("error", () => {
    state("lost");
    if (source?.readyState === EventSource.CLOSED) {
      shut();
      setTimeout(open, 3000);
    }
  });
}

function shut() {
  source?.close();
  source = undefined;
  queue = [];
}

function flush() {
  frame = undefined;
  if (queue.length === 0) return;
  const events = queue;
  queue = [];
  const stay = following && !complete && atEnd();
  const template = document.createElement("template");
  for (const event of events) {
    const seq = Number(event.lastEventId);
    if (seq <= seen.last) continue;
    template.innerHTML = event.data;
    add(seq, template.content.querySelector("li"));
  }
  document.getElementById("log-more")?.remove();
  // Whoever follows the log doesn't need its beginning; whoever reads it doesn't need its end yet.
  if (trim(stay) && !stay) {
    shut();
    following = false;
    state();
  }
  if (stay) toEnd();
  find(false);
}

function atEnd() {
  return innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
}

function toEnd() {
  scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
}

// Goes to the newest output, wherever the person is.
async function toLatest() {
  if (seen.last < seen.newest && far()) {
    shut();
    if (!(await latest())) return;
    shut();
  }
  complete = ended && seen.last >= seen.newest;
  following = true;
  toEnd();
  open();
  state();
}

// --- the window

// The item with an event. What arrives meanwhile doesn't belong below it.
async function go(seq) {
  const leaves = seq < seen.first || seq > seen.last;
  if (leaves) shut();
  const item = await reach(seq);
  if (leaves) shut();
  complete = ended && seen.last >= seen.newest;
  return item;
}

let loading = false;
async function more() {
  if (loading) return;
  const [top, bottom] = [log.getBoundingClientRect().top, atEnd()];
  const load = top > -600 && scrollY > 0 && seen.first > 1 ? earlier : bottom && !source && seen.last < seen.newest && far() ? later : undefined;
  if (!load) return bottom && !source && !complete ? open() : undefined;
  loading = true;
  try {
    await load();
    complete = ended && seen.last >= seen.newest;
    // The end may have been dropped. The stream goes on from there once somebody is there again.
    if (seen.last < seen.newest) shut();
  } catch {
    // The next scroll tries again.
  } finally {
    loading = false;
  }
  find(false);
  state();
}

// --- the parts around the log

let due;
function soon() {
  due ??= setTimeout(refresh, 150);
}

async function refresh() {
  due = undefined;
  try {
    const page = await fetchPage(panel.dataset.part);
    if (!page) return;
    for (const id of ["run-head", "run-wait", "run-result", "run-worktree", "run-side"]) swap(document.getElementById(id), page.getElementById(id));
    const title = page.querySelector("title");
    if (title) document.title = title.textContent;
  } catch {
    // The next change triggers a retry.
  }
}

// The device can go online or offline without any event of the run.
document.addEventListener("moved", (event) => {
  if (!ended && event.detail.events.some(({ type }) => type === "any" || type.startsWith("runtime."))) soon();
});

// "Last heard from" ages even when nothing happens.
setInterval(() => {
  if (!ended && !document.hidden) soon();
}, 15000);

// --- following

function state(lost) {
  foot.hidden = false;
  const mark = foot.querySelector("svg");
  mark.classList.toggle("gone", complete || lost !== undefined || !following);
  line.textContent = complete ? foot.dataset.ended : lost ? foot.dataset.lost : following ? foot.dataset.following : foot.dataset.paused;
  button.hidden = complete && seen.last >= seen.newest;
  button.textContent = following ? button.dataset.stop : button.dataset.go;
}

button.addEventListener("click", () => {
  if (!following || far()) return toLatest();
  following = false;
  state();
});

// --- search

const field = document.getElementById("find");
const input = field.querySelector("input");
const output = field.querySelector("output");
const marks = globalThis.CSS?.highlights;
let ranges = [];
let at = -1;
field.hidden = false;

// Every match, in visible and in folded text.
function places(words) {
  const found = [];
  const wanted = words.toLowerCase();
  const unseen = new Set([...document.querySelectorAll(".toggles input:not(:checked)")].map((toggle) => toggle.id.replace("show-", "k-")));
  for (const item of log.children) {
    // Most items don't match, and their text as a whole says so quickly.
    if (unseen.has(item.className) || !item.textContent.toLowerCase().includes(wanted)) continue;
    const walker = document.createTreeWalker(item, NodeFilter.SHOW_TEXT, (node) =>
      node.parentElement.closest(".seq, time, summary, .tag") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT,
    );
    while (walker.nextNode()) {
      const text = walker.currentNode.data.toLowerCase();
      if (text.length !== walker.currentNode.data.length) continue;
      for (let from = text.indexOf(wanted); from >= 0; from = text.indexOf(wanted, from + wanted.length)) {
        const range = new Range();
        range.setStart(walker.currentNode, from);
        range.setEnd(walker.currentNode, from + wanted.length);
        found.push(range);
      }
    }
  }
  return found;
}

// The hits of a search in a log of which the page has a part: events, as the hub found them.
let hits;
let asked = 0;

function find(go) {
  const words = input.value;
  marks?.delete("found");
  // What a person went to stays marked while more of the log is loaded.
  if (go || words.trim() === "") marks?.delete("current");
  if (words.trim() === "") {
    ranges = [];
    at = -1;
    hits = undefined;
    asked += 1;
    output.textContent = "";
    return;
  }
  if (!whole()) {
    ranges = places(words);
    marks?.set("found", new Highlight(...ranges));
    if (go) ask(words);
    return;
  }
  hits = undefined;
  ranges = places(words);
  if (at >= ranges.length) at = ranges.length - 1;
  if (go && ranges.length > 0 && at < 0) at = 0;
  show(go);
}

async function ask(words) {
  const own = ++asked;
  output.textContent = output.dataset.busy;
  try {
    const page = await fetchPage(`${panel.dataset.find}?q=${encodeURIComponent(words)}`);
    const found = page?.getElementById("log-found");
    if (!found || own !== asked) return;
    hits = { seqs: found.dataset.seqs === "" ? [] : found.dataset.seqs.split(" ").map(Number), more: found.dataset.more === "true" };
    // The next one from what is on the page.
    at = Math.max(0, hits.seqs.findIndex((seq) => seq >= seen.first));
    await hit();
  } catch {
    if (own === asked) output.textContent = "";
  }
}

async function hit() {
  if (hits.seqs.length === 0) {
    output.textContent = output.dataset.none;
    return;
  }
  const text = hits.more ? output.dataset.more : output.dataset.some;
  output.textContent = text.replace("{n}", at + 1).replace("{total}", hits.seqs.length);
  const seq = hits.seqs[at];
  following = false;
  const item = await go(seq);
  if (!item || hits?.seqs[at] !== seq) return;
  ranges = places(input.value);
  marks?.set("found", new Highlight(...ranges));
  // An item may have several: as many as hits before this one in it.
  const inside = ranges.filter((range) => item.contains(range.startContainer));
  const before = hits.seqs.filter((other) => other < seq && other >= Number(item.id.slice(1))).length;
  const current = inside[Math.min(before, inside.length - 1)];
  if (current) reveal(current);
  else item.scrollIntoView({ block: "center", behavior: "instant" });
  state();
}

function show(go) {
  if (ranges.length === 0) {
    marks?.delete("current");
    output.textContent = output.dataset.none;
    return;
  }
  output.textContent = output.dataset.some.replace("{n}", at + 1).replace("{total}", ranges.length);
  marks?.set("found", new Highlight(...ranges));
  const current = ranges[at];
  if (!current) return;
  marks?.set("current", new Highlight(current));
  if (go) reveal(current);
}

function reveal(current) {
  marks?.set("current", new Highlight(current));
  for (let fold = current.startContainer.parentElement.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  current.startContainer.parentElement.scrollIntoView({ block: "nearest" });
  // A long text is on the screen before the match in it is.
  const { top, bottom } = current.getBoundingClientRect();
  if (top < 60 || bottom > innerHeight - 60) scrollBy({ top: top - innerHeight / 3 });
}

let typing;
input.addEventListener("input", () => {
  at = -1;
  clearTimeout(typing);
  typing = setTimeout(() => find(true), 120);
});
input.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  if (hits?.seqs.length > 0) {
    at = (at + (event.shiftKey ? hits.seqs.length - 1 : 1)) % hits.seqs.length;
    return hit();
  }
  if (ranges.length === 0) return;
  at = (at + (event.shiftKey ? ranges.length - 1 : 1)) % ranges.length;
  show(true);
});
for (const toggle of document.querySelectorAll(".toggles input")) toggle.addEventListener("change", () => find(false));

// --- links to a line: an event that continues a text is part of the item before it, or isn't loaded yet

async function land() {
  const seq = Number(/^#s(\d+)$/.exec(location.hash)?.[1] ?? 0);
  if (seq === 0 || seq > seen.newest) return;
  const item = await go(seq);
  if (!item) return;
  for (const old of log.querySelectorAll(".linked")) old.classList.remove("linked");
  item.classList.add("linked");
  // What comes before has its true height only when it was drawn once.
  item.scrollIntoView({ block: "center" });
  requestAnimationFrame(() => requestAnimationFrame(() => item.scrollIntoView({ block: "center" })));
  following = atEnd();
  open();
  state();
}
addEventListener("hashchange", land);

// --- start

document.addEventListener("visibilitychange", () => (document.hidden ? shut() : !ended && open()));
addEventListener("pagehide", shut);
// Whoever scrolls back reads; whoever scrolls to the end follows. What waits for a person comes first, as does a link.
addEventListener("scroll", () => {
  more();
  if (complete || following === (atEnd() && !far())) return;
  following = !following;
  state();
}, { passive: true });
if (!ended && location.hash === "" && document.getElementById("run-wait").childElementCount === 0) toLatest();
following = atEnd();
state();
land();
// An ended run may have more events than the page shows.
open();
