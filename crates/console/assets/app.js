// Loaded by every page. Pages work without it; it adds local times, live updates, shortcuts and the palette.
import "./theme.js";
import "./time.js";
import "./copy.js";
import "./keys.js";
import "./drafts.js";
import "./live.js";
import "./palette.js";

// Says so when the hub can't be reached, and shows notifications. Only where the connection is trusted.
if ("serviceWorker" in navigator && document.body.dataset.feed) navigator.serviceWorker.register("/service-worker.js").catch(() => {});

// Browsers hold the session back when a link on another site leads here. From our own page they send it.
if (document.querySelector("form[data-ask-again]")) location.replace("/login");

// A sign-in link submits itself when a person opens it, but not in a preview or a prerendered page.
const login = document.querySelector("form[data-submit]");
if (login) {
  history.replaceState(null, "", "/login");
  const submit = () => {
    if (document.visibilityState === "visible" && !document.prerendering) login.requestSubmit();
  };
  if (document.visibilityState === "visible" && !document.prerendering) submit();
  else document.addEventListener("visibilitychange", submit, { once: true });
}
