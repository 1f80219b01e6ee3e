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
  const stay = following && !ended && innerHeight + scrollY >= document.documentElement.scrollHeight - 120;
  const template = document.createElement("template");
  for (const event of events) {
    const seq = Number(event.lastEventId);
    if (seq <= last) continue;
    last = seq;
    template.innerHTML = event.data;
    append(template.content.querySelector("li"));
  }
  document.getElementById("log-more")?.remove();
  if (stay) scrollTo({ top: document.documentElement.scrollHeight });
  find(false);
}

// A continued text is appended to the previous item, as on the server.
function append(item) {
  if (!item) return;
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
  if (following) scrollTo({ top: document.documentElement.scrollHeight });
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
  const walker = document.createTreeWalker(log, NodeFilter.SHOW_TEXT, (node) => {
    const item = node.parentElement.closest("li");
    const hidden = !item || getComputedStyle(item).display === "none" || node.parentElement.closest(".seq, time, summary, .tag");
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
  }
}

input.addEventListener("input", () => {
  at = -1;
  find(true);
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
state();
// An ended run may have more events than the page shows.
open();
