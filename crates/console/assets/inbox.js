// The live inbox: new requests appear and answered ones disappear without a reload, and never under the pointer.
import "./passkeys.js";
import { busy, concerns, fetchPage, swap } from "./live.js";

const list = document.getElementById("slips");
const SETTLE = 600;
let due;
let settled;

// Right after cards move, a click may be meant for the card that was there before.
function settle() {
  list.classList.add("settling");
  clearTimeout(settled);
  settled = setTimeout(() => list.classList.remove("settling"), SETTLE);
}

// Someone else answered while this user was working on the card: it stays, and shows the decision.
async function gone(slip) {
  if (slip.classList.contains("gone")) return;
  slip.classList.add("gone");
  for (const control of slip.querySelectorAll("button, input, select")) control.disabled = true;
  // What was typed can still be copied.
  for (const text of slip.querySelectorAll("textarea")) text.readOnly = true;
  const note = document.createElement("p");
  note.setAttribute("role", "alert");
  note.textContent = slip.dataset.gone ?? list.dataset.gone;
  slip.querySelector(".stub")?.append(note);
  if (slip.dataset.gone) return;
  const page = await fetchPage(`/approvals/${slip.id}`).catch(() => undefined);
  const settled = page?.getElementById(slip.id)?.querySelector(".stub > .st");
  if (settled) note.before(document.importNode(settled, true));
}

function merge(page) {
  const fresh = page.getElementById("slips");
  if (!fresh) return;
  const wanted = [...fresh.querySelectorAll("[data-slip]")];
  const names = new Set(wanted.map((slip) => slip.id));
  for (const slip of list.querySelectorAll("[data-slip]")) {
    if (names.has(slip.id)) continue;
    const typed = [...slip.querySelectorAll("textarea")].some((text) => text.value !== "");
    if (busy(slip) || typed || slip.hasAttribute("aria-current")) gone(slip);
    else {
      slip.remove();
      settle();
    }
  }
  // Existing cards keep their place and their input. New ones go where the server puts them.
  let place = list.firstElementChild;
  for (const slip of wanted) {
    const here = document.getElementById(slip.id);
    if (here) {
      place = here.nextElementSibling;
      continue;
    }
    const arrived = document.importNode(slip, true);
    arrived.classList.add("arrived");
    list.insertBefore(arrived, place);
    settle();
  }
  document.getElementById("slips-empty").hidden = list.querySelector("[data-slip]") !== null;
  for (const id of ["summary", "grants", "history"]) {
    const [old, now] = [document.getElementById(id), page.getElementById(id)];
    if (old && now) swap(old, now);
  }
  document.title = page.title;
}

async function refresh() {
  due = undefined;
  try {
    const page = await fetchPage(document.body.dataset.here || location.href);
    if (page) merge(page);
  } catch {
    // The next change triggers a retry.
  }
}

if (list) {
  document.addEventListener("moved", (event) => {
    if (event.detail.events.some(concerns)) due ??= setTimeout(refresh, 150);
  });
}

// --- keyboard: keys apply only to the card selected with J or K

const slips = () => [...document.querySelectorAll("[data-slip]")];
const chosen = () => document.querySelector("[data-slip][aria-current]");

function choose(step) {
  const all = slips();
  if (all.length === 0) return;
  const at = all.indexOf(chosen());
  const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step));
  all[at]?.removeAttribute("aria-current");
  all[next].setAttribute("aria-current", "true");
  all[next].focus({ preventScroll: true });
  all[next].scrollIntoView({ block: "nearest" });
}

const press = (answer) => chosen()?.querySelector(`.decide button[value=${answer}]`)?.click();

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.repeat) return;
  if (document.body.dataset.shortcuts === "off") return;
  if (event.target.closest?.("input, textarea, select, button, a, summary, [contenteditable]")) return;
  if (list?.classList.contains("settling")) return;
  switch (event.key) {
    case "j": choose(1); break;
    case "k": choose(-1); break;
    case "Enter": press("allow_once"); break;
    case "r": press("allow_run"); break;
    case "d": press("deny"); break;
    case "o": chosen()?.querySelector("header a")?.click(); break;
    default: return;
  }
  event.preventDefault();
});

// Clicking into a card selects it.
document.addEventListener("focusin", (event) => {
  const slip = event.target.closest?.("[data-slip]");
  if (!slip || slip === chosen()) return;
  chosen()?.removeAttribute("aria-current");
  slip.setAttribute("aria-current", "true");
});
