// Passkeys: adds one, signs in with one, and has approvals confirmed with one. Where there are none, the page says why.
const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
const text = (buffer) =>
  btoa(Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join(""))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
const known = (id) => ({ type: "public-key", id: bytes(id) });

// Why this page has no passkeys. They belong to a host name, which an address is not.
function obstacle() {
  if (/^127\.|^\[::1\]$/.test(location.hostname)) return "local";
  if (!isSecureContext || !window.PublicKeyCredential || /^[\d.]+$|^\[/.test(location.hostname)) return "unsupported";
  return undefined;
}

function say(form, words) {
  const note = form.querySelector("[data-passkey-note]");
  const said = note.dataset[words] ?? words;
  note.textContent = said.replace("{address}", `http://localhost:${location.port}${location.pathname}`);
  note.hidden = false;
}

async function ask(form, submitter) {
  const response = await fetch(form.dataset.passkey, {
    method: "POST",
    headers: { accept: "application/json" },
    body: new URLSearchParams(new FormData(form, submitter)),
  });
  const answer = await response.json().catch(() => ({}));
  if (response.ok) return answer;
  throw Object.assign(new Error("refused"), { words: answer.message });
}

async function create({ rpId, challenge, userId, userName, algorithms, exclude, timeoutMs }) {
  const { rawId, response } = await navigator.credentials.create({
    publicKey: {
      rp: { id: rpId, name: `Attaché (${rpId})` },
      user: { id: bytes(userId), name: userName, displayName: userName },
      challenge: bytes(challenge),
      pubKeyCredParams: algorithms.map((alg) => ({ type: "public-key", alg })),
      excludeCredentials: exclude.map(known),
      authenticatorSelection: { residentKey: "required", requireResidentKey: true, userVerification: "required" },
      attestation: "none",
      timeout: timeoutMs,
    },
  });
  return {
    id: text(rawId),
    clientDataJSON: text(response.clientDataJSON),
    authenticatorData: text(response.getAuthenticatorData()),
  };
}

async function get({ rpId, challenge, allow, timeoutMs }) {
  const { rawId, response } = await navigator.credentials.get({
    publicKey: {
      rpId,
      challenge: bytes(challenge),
      allowCredentials: allow.map(known),
      userVerification: "required",
      timeout: timeoutMs,
    },
  });
  return {
    id: text(rawId),
    clientDataJSON: text(response.clientDataJSON),
    authenticatorData: text(response.authenticatorData),
    signature: text(response.signature),
    userHandle: text(response.userHandle ?? new ArrayBuffer(0)),
  };
}

// Has the browser do what the hub asks for, and sends the form with the outcome.
async function confirm(form, act, submitter) {
  const reason = obstacle();
  if (reason) return say(form, reason);
  try {
    form.elements.passkey.value = JSON.stringify(await act(await ask(form, submitter)));
  } catch (error) {
    return say(form, error.words ?? "failed");
  }
  form.submit();
}

document.addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  if (form.dataset.passkey === undefined) return;
  const isNew = form.id === "add-passkey";
  // A denial needs none, nor does signing in with a password.
  if (!isNew && !submitter?.value.startsWith("allow")) return;
  event.preventDefault();
  confirm(form, isNew ? create : get, submitter);
});

const entry = document.getElementById("use-passkey");
if (entry) {
  const reason = obstacle();
  if (reason) say(entry.form, reason);
  else entry.hidden = false;
  entry.addEventListener("click", () => confirm(entry.form, get));
}

const added = document.getElementById("add-passkey");
if (added) {
  const reason = obstacle();
  if (reason) say(added, reason);
  for (const part of added.querySelectorAll("[data-passkey-part]")) part.hidden = reason !== undefined;
}
