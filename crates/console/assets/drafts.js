// Keeps what a person types in this tab until it has been sent, so that a session that ends meanwhile loses nothing.
const key = (field) => `draft:${location.pathname}:${field.form?.getAttribute("action") ?? ""}:${field.name}`;
const fields = () => [...document.querySelectorAll("form textarea[name]")];
const SENT = "draft-sent";

// A form that was sent and led anywhere but to the login has been received.
if (location.pathname !== "/login") {
  for (const name of JSON.parse(sessionStorage.getItem(SENT) ?? "[]")) sessionStorage.removeItem(name);
  sessionStorage.removeItem(SENT);
}

for (const field of fields()) {
  const draft = sessionStorage.getItem(key(field));
  if (draft && field.value === "") field.value = draft;
}

document.addEventListener("input", (event) => {
  const field = event.target;
  if (!fields().includes(field)) return;
  if (field.value === field.defaultValue) sessionStorage.removeItem(key(field));
  else sessionStorage.setItem(key(field), field.value);
});

document.addEventListener("submit", (event) => {
  if (event.target.getAttribute("action") === "/logout") sessionStorage.clear();
  const names = fields().filter((field) => field.form === event.target).map(key);
  if (names.length > 0) sessionStorage.setItem(SENT, JSON.stringify(names));
});

/// Whether something on this page was typed and not sent.
export function typed() {
  return [...document.querySelectorAll("textarea, input:not([type=hidden], [type=checkbox], [type=radio], [type=search])")].some(
    (field) => field.value !== field.defaultValue,
  );
}
