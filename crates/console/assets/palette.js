// The palette: Ctrl or ⌘ with K finds pages, actions, agents, conversations, runs and documents.
import { fetchPage } from "./live.js";

const dialog = document.getElementById("palette");
const opener = document.getElementById("palette-open");
const input = dialog?.querySelector("[role=combobox]");
const list = dialog?.querySelector("[role=listbox]");
const status = dialog?.querySelector("[role=status]");

let asked = 0;
let due;
let active;

const options = () => [...list.querySelectorAll("[role=option]")];

function choose(option) {
  active?.removeAttribute("aria-selected");
  active = option;
  active?.setAttribute("aria-selected", "true");
  active?.scrollIntoView({ block: "nearest" });
  if (active) input.setAttribute("aria-activedescendant", active.id);
  else input.removeAttribute("aria-activedescendant");
}

async function find() {
  const turn = ++asked;
  try {
    const page = await fetchPage(`${dialog.dataset.find}?q=${encodeURIComponent(input.value)}`);
    // A later question may have been answered first.
    if (!page || turn !== asked) return;
    list.replaceChildren(...document.importNode(page.getElementById("palette-found"), true).childNodes);
    const found = options();
    for (const [at, option] of found.entries()) option.id = `palette-o${at}`;
    choose(found[0]);
    status.textContent = found.length === 0 ? status.dataset.none : found.length === 1 ? status.dataset.one : status.dataset.many.replace("{n}", found.length);
    status.classList.toggle("hide", found.length > 0);
  } catch {
    // The next letter asks again.
  }
}

function open() {
  if (dialog.open) return;
  dialog.showModal();
  input.value = "";
  find();
}

if (dialog) {
  opener.hidden = false;
  opener.addEventListener("click", open);
  input.addEventListener("input", () => {
    clearTimeout(due);
    due = setTimeout(find, 80);
  });
  input.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    const found = options();
    const at = found.indexOf(active);
    switch (event.key) {
      case "ArrowDown": choose(found[(at + 1) % found.length]); break;
      case "ArrowUp": choose(found[(at + found.length - 1) % found.length]); break;
      case "Enter": active?.click(); break;
      default: return;
    }
    event.preventDefault();
  });
  dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
  // A click beside it closes it, as does a link to a place on the same page.
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest("[role=option]")) dialog.close();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || event.altKey || event.shiftKey || event.isComposing) return;
    if (!(event.ctrlKey || event.metaKey) || document.body.dataset.shortcuts === "off") return;
    event.preventDefault();
    if (dialog.open) dialog.close();
    else open();
  });
}
