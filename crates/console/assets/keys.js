// Keyboard shortcuts: j and k move between rows, Enter opens one, / searches, and data-key elements have their own key.
const rows = () => [...document.querySelectorAll("table.runs tbody tr[data-run]")];

function typing(target) {
  return target.closest?.("input, textarea, select, [contenteditable]");
}

function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const at = all.findIndex((row) => row.hasAttribute("aria-current"));
  const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step));
  all[at]?.removeAttribute("aria-current");
  all[next].setAttribute("aria-current", "true");
  all[next].querySelector("a.t")?.focus({ preventScroll: true });
  all[next].scrollIntoView({ block: "nearest" });
}

// Escape closes the form that drops down from a button, and goes back to the button.
function closes(target) {
  const open = target.closest?.("details.ask[open]") ?? document.querySelector("details.ask[open]");
  if (!open) return false;
  open.open = false;
  open.querySelector("summary").focus();
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "Escape" && closes(event.target)) return;
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key.length === 1 && document.body.dataset.shortcuts === "off") return;
  const marked = [...document.querySelectorAll("[data-key]")].find((element) => element.dataset.key === event.key);
  if (marked) {
    event.preventDefault();
    marked.click();
    marked.parentElement.querySelector("input:not([type=hidden])")?.focus();
    return;
  }
  switch (event.key) {
    case "j": move(1); break;
    case "k": move(-1); break;
    case "Enter": {
      if (event.target !== document.body) return;
      document.querySelector("tr[aria-current] a.t")?.click();
      break;
    }
    case "/": document.getElementById("q")?.focus() ?? document.querySelector(".logbar input[type=search]")?.focus(); break;
    default: return;
  }
  event.preventDefault();
});

// A drop-down form closes on a click outside it.
document.addEventListener("click", (event) => {
  for (const open of document.querySelectorAll("details.ask[open]")) if (!open.contains(event.target)) open.open = false;
});
