// What every page loads. Pages work without any of it; this makes them local, live and quick.
import "./theme.js";
import "./time.js";
import "./copy.js";
import "./keys.js";
import "./live.js";

// A sign-in link opened by a person signs in by itself; a preview or a prerendered page does not.
const login = document.querySelector("form[data-submit]");
if (login) {
  history.replaceState(null, "", "/login");
  const submit = () => {
    if (document.visibilityState === "visible" && !document.prerendering) login.requestSubmit();
  };
  if (document.visibilityState === "visible" && !document.prerendering) submit();
  else document.addEventListener("visibilitychange", submit, { once: true });
}
