// The items of a log, as they arrive on its stream.
const LONGEST = 16 * 1024;

// The end of a tool call completes the item of its start, whether or not that is folded.
function completes(log, item) {
  const fresh = item.querySelector("[data-call]");
  const shown = fresh && log.querySelector(`[data-call="${CSS.escape(fresh.dataset.call)}"]`);
  if (!shown) return false;
  for (const part of [".callstate", ".callout", ".callin"]) {
    const replacement = fresh.querySelector(part);
    if (replacement.childElementCount > 0) shown.querySelector(part).replaceChildren(...replacement.childNodes);
  }
  return true;
}

/// A continued text is appended to the previous item, as on the server.
export function append(log, item) {
  if (!item || completes(log, item)) return;
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
