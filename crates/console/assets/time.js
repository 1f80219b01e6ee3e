// Makes times local and relative. The exact time stays in `datetime` and the title.
// In the language of the page, as the reader's region writes it.
const page = document.documentElement.lang;
const lang = navigator.languages?.find((tag) => tag.split("-")[0] === page.split("-")[0]) ?? (page || undefined);
const units = (document.documentElement.dataset.units || "d h m s").split(" ");
const relative = new Intl.RelativeTimeFormat(lang, { numeric: "auto", style: "short" });
const full = new Intl.DateTimeFormat(lang, { dateStyle: "medium", timeStyle: "medium" });
const clock = new Intl.DateTimeFormat(lang, { timeStyle: "medium" });
const short = new Intl.DateTimeFormat(lang, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(lang, { day: "numeric", month: "short" });

const pad = (number) => String(number).padStart(2, "0");

// The same formats as on the server.
function duration(millis) {
  const seconds = Math.max(0, Math.floor(millis / 1000));
  const [d, h, m, s] = units;
  if (seconds < 60) return `${seconds} ${s}`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} ${m} ${pad(seconds % 60)} ${s}`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} ${h} ${pad(Math.floor((seconds % 3600) / 60))} ${m}`;
  return `${Math.floor(seconds / 86400)} ${d} ${pad(Math.floor((seconds % 86400) / 3600))} ${h}`;
}

function ago(date, now) {
  const seconds = Math.round((date - now) / 1000);
  const size = Math.abs(seconds);
  if (size < 60) return relative.format(seconds, "second");
  if (size < 3600) return relative.format(Math.trunc(seconds / 60), "minute");
  if (size < 86400) return relative.format(Math.trunc(seconds / 3600), "hour");
  if (size < 30 * 86400) return relative.format(Math.trunc(seconds / 86400), "day");
  return full.format(date);
}

function show(element, now) {
  const date = new Date(element.dateTime);
  if (Number.isNaN(date.getTime())) return;
  let text;
  switch (element.dataset.form) {
    case "tick": text = duration(now - date); break;
    case "left": text = duration(date - now); break;
    case "relative": text = ago(date, now); break;
    case "clock": {
      const today = date.toDateString() === new Date(now).toDateString();
      const exact = element.closest(".log, .timeline");
      text = today ? (exact ? clock : short).format(date) : exact ? `${day.format(date)} ${clock.format(date)}` : day.format(date);
      break;
    }
    default: text = full.format(date);
  }
  if (element.textContent !== text) element.textContent = text;
  if (!element.title) element.title = full.format(date);
}

export function format(root) {
  const now = Date.now();
  for (const element of root.querySelectorAll("time[data-form]")) show(element, now);
}

format(document);
new MutationObserver((changes) => {
  for (const change of changes) {
    for (const node of change.addedNodes) if (node.nodeType === Node.ELEMENT_NODE) format(node);
  }
}).observe(document.body, { childList: true, subtree: true });

setInterval(() => {
  if (document.hidden) return;
  const now = Date.now();
  for (const element of document.querySelectorAll("time[data-form=tick], time[data-form=left], time[data-form=relative]")) show(element, now);
}, 1000);
