// The run page: appends the live log without scroll jumps, refreshes the parts around it and searches the log.
import { fetchPage, swap } from "./live.js";
import { append } from "./log.js";

const panel = document.getElementById("log-panel");
const log = document.getElementById("log");
const foot = document.getElementById("follow");
const line = foot.querySelector("[role=status]");
const button = foot.querySelector("button");

// More items than this make a page slow. The raw log has all of them, and a link to an earlier one leads there.
const MOST = 5000;

let last = Number(panel.dataset.after);
let ended = panel.dataset.ended === "true";
// Whether the page has everything up to the end.
let complete = ended && last >= Number(panel.dataset.last);
let following = true;
let source;
let queue = [];
let frame;

// --- the stream

function open() {
  if (source || document.hidden) return;
  source = new EventSource(`${panel.dataset.stream}?after=${last}`);
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
    if (seq <= last) continue;
    last = seq;
    template.innerHTML = event.data;
    append(log, template.content.querySelector("li"));
  }
  document.getElementById("log-more")?.remove();
  trim(stay);
  if (stay) toEnd();
  find(false);
}

// Whoever follows the log doesn't need its beginning; whoever reads it doesn't need its end yet.
function trim(stay) {
  if (log.childElementCount <= MOST) return;
  if (!stay) {
    queue = [];
    shut();
    following = false;
    state();
    return;
  }
  while (log.childElementCount > MOST) log.firstElementChild.remove();
  const note = document.getElementById("log-cut");
  if (note) note.hidden = false;
}

function atEnd() {
  return innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
}

function toEnd() {
  scrollTo({ top: document.documentElement.scrollHeight });
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
    for (const id of ["run-head", "run-wait", "run-result", "run-side"]) swap(document.getElementById(id), page.getElementById(id));
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
  button.hidden = complete;
  button.textContent = following ? button.dataset.stop : button.dataset.go;
}

button.addEventListener("click", () => {
  following = !following;
  if (following) {
    toEnd();
    open();
  }
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

function find(go) {
  const words = input.value;
  marks?.delete("found");
  marks?.delete("current");
  if (words === "") {
    ranges = [];
    at = -1;
    output.textContent = "";
    return;
  }
  ranges = places(words);
  if (at >= ranges.length) at = ranges.length - 1;
  if (go && ranges.length > 0 && at < 0) at = 0;
  show(go);
}

function show(go) {
  if (ranges.length === 0) {
    output.textContent = output.dataset.none;
    return;
  }
  output.textContent = output.dataset.some.replace("{n}", at + 1).replace("{total}", ranges.length);
  marks?.set("found", new Highlight(...ranges));
  const current = ranges[at];
  if (!current) return;
  marks?.set("current", new Highlight(current));
  if (go) {
    for (let fold = current.startContainer.parentElement.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    current.startContainer.parentElement.scrollIntoView({ block: "nearest" });
    // A long text is on the screen before the match in it is.
    const { top, bottom } = current.getBoundingClientRect();
    if (top < 60 || bottom > innerHeight - 60) scrollBy({ top: top - innerHeight / 3 });
  }
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
  if (ranges.length === 0) return;
  at = (at + (event.shiftKey ? ranges.length - 1 : 1)) % ranges.length;
  show(true);
});
for (const toggle of document.querySelectorAll(".toggles input")) toggle.addEventListener("change", () => find(false));

// --- links to a line: an event that continues a text is part of the item before it, or is on another page

function land() {
  const seq = Number(/^#s(\d+)$/.exec(location.hash)?.[1] ?? 0);
  if (seq === 0) return;
  const item = [...log.children].find((item) => Number(item.dataset.seq) >= seq);
  const first = Number(log.firstElementChild?.id.slice(1) ?? 0);
  if (!item || seq < first) {
    const after = Math.max(0, seq - 1);
    if (seq <= Number(panel.dataset.last) && new URLSearchParams(location.search).get("after") !== String(after)) location.replace(`?after=${after}${location.hash}`);
    return;
  }
  for (const old of log.querySelectorAll(".linked")) old.classList.remove("linked");
  item.classList.add("linked");
  // What comes before has its true height only when it was drawn once.
  item.scrollIntoView({ block: "center" });
  requestAnimationFrame(() => requestAnimationFrame(() => item.scrollIntoView({ block: "center" })));
}
addEventListener("hashchange", land);

// --- start

document.addEventListener("visibilitychange", () => (document.hidden ? shut() : !ended && open()));
addEventListener("pagehide", shut);
// Whoever scrolls back reads; whoever scrolls to the end follows. What waits for a person comes first, as does a link.
addEventListener("scroll", () => {
  if (complete || following === atEnd()) return;
  following = !following;
  state();
}, { passive: true });
if (!ended && location.hash === "" && document.getElementById("run-wait").childElementCount === 0) toEnd();
following = atEnd();
state();
land();
// An ended run may have more events than the page shows.
open();
