// The tenant feed: on changes, refreshes the marked parts of the page from a new copy of it.
import { typed } from "./drafts.js";

const path = document.body.dataset.feed;
const pulse = document.getElementById("pulse");
let after = document.body.dataset.after ?? "";
let source;
let retry;

function say(state) {
  if (!pulse) return;
  pulse.hidden = false;
  pulse.dataset.state = state;
  pulse.textContent = state === "on" ? pulse.dataset.on : pulse.dataset.off;
}

function open() {
  if (!path || source || document.hidden) return;
  source = new EventSource(after === "" ? path : `${path}?after=${after}`);
  source.addEventListener("open", () => say("on"));
  source.addEventListener("moved", (event) => {
    after = event.lastEventId || after;
    document.dispatchEvent(new CustomEvent("moved", { detail: JSON.parse(event.data) }));
  });
  source.addEventListener("error", () => {
    say("off");
    // The browser reconnects automatically unless the server refused.
    if (source?.readyState === EventSource.CLOSED) {
      shut();
      clearTimeout(retry);
      // If the session has ended, reloading the page leads to the login.
      retry = setTimeout(() => fetchPage(document.body.dataset.here).catch(() => {}).finally(open), 3000);
    }
  });
}

function shut() {
  source?.close();
  source = undefined;
}

// A form that is sent while the hub can't be reached would end on the browser's error page and take along what was typed.
document.addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  if (pulse?.dataset.state !== "off" || form.dataset.reachable !== undefined) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const send = () => {
    form.dataset.reachable = "";
    form.requestSubmit(submitter);
  };
  const refuse = () => {
    document.getElementById("announce").textContent = pulse.dataset.off;
    pulse.scrollIntoView({ block: "center" });
  };
  fetch("/healthz", { cache: "no-store" }).then(send, refuse);
}, { capture: true });

// Hidden pages close their connection: browsers allow only a few per host.
document.addEventListener("visibilitychange", () => (document.hidden ? shut() : open()));
addEventListener("pagehide", shut);
addEventListener("pageshow", open);
open();

/// Fetches one of our pages as a document.
export async function fetchPage(url) {
  const response = await fetch(url, { headers: { accept: "text/html" }, redirect: "error" });
  if (response.status === 401) signedOut();
  if (!response.ok) return undefined;
  return new DOMParser().parseFromString(await response.text(), "text/html");
}

// Leads to the login, unless that would take away what the person is typing.
function signedOut() {
  if (!typed() || !pulse) return location.reload();
  const link = document.createElement("a");
  Object.assign(link, { href: "/login", target: "_blank", textContent: pulse.dataset.out });
  say("off");
  pulse.replaceChildren(link);
}

/// Whether the user is interacting with this element.
export function busy(element) {
  return element.contains(document.activeElement) && document.activeElement !== document.body
    || element.querySelector("details.ask[open]") !== null;
}

/// Replaces an element with its newer version, unless nothing changed or the user is interacting with it.
export function swap(element, fresh) {
  if (!fresh || busy(element)) return;
  const marks = new Set([...element.querySelectorAll("details[open][id]")].map((details) => details.id));
  if (strip(element) === strip(fresh)) return;
  const imported = document.importNode(fresh, true);
  for (const id of marks) imported.querySelector(`#${CSS.escape(id)}`)?.setAttribute("open", "");
  element.replaceChildren(...imported.childNodes);
}

// Ignore what time.js wrote into the page.
function strip(element) {
  const copy = element.cloneNode(true);
  for (const time of copy.querySelectorAll("time")) {
    time.textContent = "";
    time.removeAttribute("title");
  }
  for (const ribbon of copy.querySelectorAll(".ribbon")) ribbon.remove();
  for (const button of copy.querySelectorAll("[data-copy], [data-copy-from]")) button.remove();
  return copy.innerHTML;
}

let due;
let running = false;
async function refresh() {
  due = undefined;
  if (running) return soon();
  running = true;
  try {
    const page = await fetchPage(document.body.dataset.here || location.href);
    if (page) for (const element of document.querySelectorAll("[data-live][id]")) swap(element, page.getElementById(element.id));
  } catch {
    // The next change triggers a retry.
  } finally {
    running = false;
  }
}

function soon() {
  due ??= setTimeout(refresh, 400);
}

// The navigation counts are not part of a page, so they are fetched separately.
const nav = document.getElementById("nav");
let navDue;
async function count() {
  navDue = undefined;
  try {
    const page = await fetchPage(nav.dataset.nav);
    if (!page) return;
    swap(nav, page.body);
    announce(waiting(page));
  } catch {
    // The next change triggers a retry.
  }
}

const waiting = (root) => Number.parseInt(root.querySelector("#asked")?.textContent ?? 0, 10) || 0;

// What waits for a person is in the window's title, and is said when there is more of it. The page itself may show it
// sooner: what was said last counts.
let announced = waiting(document);
function announce(now) {
  const before = announced;
  announced = now;
  document.title = (now > 0 ? `(${now}) ` : "") + document.title.replace(/^\(\d+\) /, "");
  if (now <= before) return;
  const region = document.getElementById("announce");
  region.textContent = now === 1 ? region.dataset.one : region.dataset.many.replace("{n}", now);
}

/// Whether an event can change what waits for a person.
export function concerns({ type }) {
  return type === "any" || /^(permission\.|task\.(waiting|input_|authorization_|requeued|completed|failed|cancelled))/.test(type);
}

document.addEventListener("moved", (event) => {
  if (!nav || !event.detail.events.some(concerns)) return;
  navDue ??= setTimeout(count, 300);
});

document.addEventListener("moved", (event) => {
  const kinds = event.detail.events.map((moved) => moved.type);
  for (const element of document.querySelectorAll("[data-live][id]")) {
    const wanted = element.dataset.live.split(" ");
    if (kinds.some((kind) => kind === "any" || wanted.some((prefix) => kind.startsWith(prefix)))) return soon();
  }
});
