// A conversation: shows what agents do while they do it, and sends with Ctrl or ⌘ and Enter.
import { append } from "./log.js";

const SHOWN = ["chunk", "thought", "call", "progress", "input"];
const streams = new Map();
const template = document.createElement("template");

function follow(log) {
  const after = Number(log.dataset.after);
  const known = streams.get(log.id);
  // A newer copy of the page may have less than the stream has sent.
  if (known && known.last <= after) return;
  known?.source.close();
  const stream = { source: new EventSource(`${log.dataset.stream}?after=${after}`), last: after };
  streams.set(log.id, stream);
  stream.source.addEventListener("item", (event) => {
    stream.last = Number(event.lastEventId);
    const shown = document.getElementById(log.id);
    if (!shown || stream.last <= Number(shown.dataset.after)) return;
    template.innerHTML = event.data;
    const item = template.content.querySelector("li");
    if (!item || !SHOWN.includes(item.dataset.kind)) return;
    item.removeAttribute("id");
    item.querySelector(".seq")?.remove();
    append(shown, item);
    shown.dataset.after = stream.last;
  });
  stream.source.addEventListener("end", () => stream.source.close());
}

function shut() {
  for (const { source } of streams.values()) source.close();
  streams.clear();
}

function open() {
  if (!document.hidden) for (const log of document.querySelectorAll("[data-stream]")) follow(log);
}

document.addEventListener("visibilitychange", () => (document.hidden ? shut() : open()));
addEventListener("pagehide", shut);
new MutationObserver(open).observe(document.getElementById("turns"), { childList: true });
open();

const reply = document.getElementById("reply-text");
reply?.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) reply.form.requestSubmit();
});
// After the browser has gone to the place in the address itself.
if (location.hash === "#reply") addEventListener("load", () => setTimeout(() => reply?.focus()));
