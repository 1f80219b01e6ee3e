// The pairing dialog: counts down and advances when the device connects.
import { fetchPage } from "./live.js";

const scrim = document.getElementById("pair");
const until = scrim.querySelector("[data-until]");
scrim.querySelector("[role=dialog]").focus();
// Focus stays in the dialog.
document.querySelector(".app").inert = true;

function tick() {
  const left = Math.ceil((new Date(until.dataset.until) - Date.now()) / 1000);
  if (left <= 0) {
    until.textContent = until.dataset.over;
    scrim.querySelector(".pin")?.classList.add("over");
    clearInterval(timer);
    return;
  }
  until.textContent = until.dataset.left.replace("{left}", `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`);
}
const timer = setInterval(tick, 1000);
tick();

async function flip() {
  const page = await fetchPage(scrim.dataset.paired);
  const paired = page?.getElementById("paired");
  if (!paired) return;
  clearInterval(timer);
  document.removeEventListener("moved", joined);
  scrim.replaceChildren(document.importNode(paired, true));
  scrim.querySelector("input[name=text]")?.focus();
}

function joined(event) {
  if (event.detail.events.some(({ type, agent }) => type === "any" || (type === "runtime.attached" && agent === scrim.dataset.agent))) flip();
}
document.addEventListener("moved", joined);
// The device may have connected before the feed was open.
flip();
