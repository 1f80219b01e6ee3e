// The run list: changed rows are replaced in place. New runs are announced, not inserted.
import { fetchPage, swap } from "./live.js";

const body = document.getElementById("rows");
const fresh = document.getElementById("fresh");
const newest = !new URLSearchParams(location.search).has("cursor");
const moved = new Set();
const seen = new Set();
let due;

function announce() {
  if (!fresh || seen.size === 0) return;
  const link = fresh.querySelector("a");
  link.textContent = seen.size === 1 ? fresh.dataset.one : fresh.dataset.many.replace("{n}", seen.size);
  fresh.hidden = false;
}

async function refresh() {
  due = undefined;
  const ids = [...moved].slice(0, 60);
  for (const id of ids) moved.delete(id);
  try {
    const page = await fetchPage(`/runs/rows?ids=${ids.join(",")}`);
    if (!page) return;
    for (const row of page.querySelectorAll("tr[data-run]")) {
      const old = document.getElementById(row.id);
      if (!old) continue;
      const current = old.hasAttribute("aria-current");
      const focused = old.contains(document.activeElement);
      const imported = document.importNode(row, true);
      if (current) imported.setAttribute("aria-current", "true");
      if (old.querySelector(".pick input:checked")) imported.querySelector(".pick input").checked = true;
      imported.classList.add("moved");
      old.replaceWith(imported);
      if (focused) imported.querySelector("a.t")?.focus();
    }
    for (const id of ["summary", "nav"]) {
      const [old, now] = [document.getElementById(id), page.getElementById(`fresh-${id}`)];
      if (old && now) swap(old, now);
    }
  } catch {
    // The next change triggers a retry.
  }
  if (moved.size > 0) soon();
}

function soon() {
  due ??= setTimeout(refresh, 300);
}

document.addEventListener("moved", (event) => {
  for (const { type, run } of event.detail.events) {
    if (type === "any") for (const row of document.querySelectorAll("tr.r-pending, tr.r-running")) moved.add(row.id);
    if (!run) continue;
    if (body && document.getElementById(run)) moved.add(run);
    else if (type === "task.created" && newest) seen.add(run);
  }
  announce();
  if (moved.size > 0 || event.detail.events.some(({ type, run }) => run || type === "any")) soon();
});

// --- selection

const all = document.getElementById("pick-all");
const picks = () => [...document.querySelectorAll("tr[data-run] .pick input")];

function selected() {
  const label = document.getElementById("selected");
  const count = picks().filter((pick) => pick.checked).length;
  if (label && count > 0) label.textContent = count === 1 ? label.dataset.one : label.dataset.many.replace("{n}", count);
  if (all) {
    all.checked = count > 0 && count === picks().length;
    all.indeterminate = count > 0 && !all.checked;
  }
}

if (all) all.hidden = false;
document.addEventListener("change", (event) => {
  if (event.target === all) for (const pick of picks()) pick.checked = all.checked;
  if (event.target.closest?.(".pick")) selected();
});
selected();
