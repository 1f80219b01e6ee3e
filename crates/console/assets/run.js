// The run page: appends the live log without scroll jumps, refreshes the parts around it and searches the log.
import { fetchPage, swap } from "./live.js";

const panel = document.getElementById("log-panel");
const log = document.getElementById("log");
const foot = document.getElementById("follow");
const line = foot.querySelector("[role=status]");
const button = foot.querySelector("button");
const LONGEST = 16 * 1024;

let last = Number(panel.dataset.after);
let ended = panel.dataset.ended === "true";
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
    ended = true;
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
  const stay = following && !ended && atEnd();
  const template = document.createElement("template");
  for (const event of events) {
    const seq = Number(event.lastEventId);
    if (seq <= last) continue;
    last = seq;
    template.innerHTML = event.data;
    append(template.content.querySelector("li"));
  }
  document.getElementById("log-more")?.remove();
  if (stay) toEnd();
  find(false);
}

function atEnd() {
  return innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
}

function toEnd() {
  scrollTo({ top: document.documentElement.scrollHeight });
}

// The end of a tool call completes the item of its start, whether or not that is folded.
function completes(item) {
  const fresh = item.querySelector("[data-call]");
  const shown = fresh && log.querySelector(`[data-call="${CSS.escape(fresh.dataset.call)}"]`);
  if (!shown) return false;
  for (const part of [".callstate", ".callout", ".callin"]) {
    const replacement = fresh.querySelector(part);
    if (replacement.childElementCount > 0) shown.querySelector(part).replaceChildren(...replacement.childNodes);
  }
  return true;
}

// A continued text is appended to the previous item, as on the server.
function append(item) {
  if (!item || completes(item)) return;
  const before = log.lastElementChild;
  if (item.hasAttribute("data-joins") && before?.dataset.kind === item.dataset.kind && !before.querySelector(".rest") && !item.querySelector(".rest")) {
    const [into, from] = [before, item].map((element) => element.querySelector(".line, .prose"));
    if (into.textContent.length + from.textContent.length <= LONGEST) {
      if (into.firstChild) into.firstChild.appendData(from.textContent);
      else into.textContent = from.textContent;
      before.dataset.seq = item.dataset.seq;
      return;
    }
  }
  log.append(document.importNode(item, true));
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
  mark.classList.toggle("gone", ended || lost !== undefined || !following);
  line.textContent = ended ? foot.dataset.ended : lost ? foot.dataset.lost : following ? foot.dataset.following : foot.dataset.paused;
  button.hidden = ended;
  button.textContent = following ? button.dataset.stop : button.dataset.go;
}

button.addEventListener("click", () => {
  following = !following;
  if (following) toEnd();
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
  const walker = document.createTreeWalker(log, NodeFilter.SHOW_TEXT, (node) => {
    const item = node.parentElement.closest("#log > li");
    const hidden = !item || unseen.has(item.className) || node.parentElement.closest(".seq, time, summary, .tag");
    return hidden ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT;
  });
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

// --- start

document.addEventListener("visibilitychange", () => (document.hidden ? shut() : !ended && open()));
addEventListener("pagehide", shut);
// Whoever scrolls back reads; whoever scrolls to the end follows. What waits for a person comes first, as does a link.
addEventListener("scroll", () => {
  if (ended || following === atEnd()) return;
  following = !following;
  state();
}, { passive: true });
if (!ended && location.hash === "" && document.getElementById("run-wait").childElementCount === 0) toEnd();
following = atEnd();
state();
// An ended run may have more events than the page shows.
open();
