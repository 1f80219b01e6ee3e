// Turns notifications on for this browser: permission, subscription, and the form that hands it to the hub.
const form = document.getElementById("subscribe");
const state = document.getElementById("subscribe-state");
const say = (name) => {
  state.textContent = state.dataset[name] ?? "";
  state.hidden = state.textContent === "";
};

const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
const same = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

function supported() {
  return "serviceWorker" in navigator && "PushManager" in window && "Notification" in window;
}

async function subscribe() {
  if ((await Notification.requestPermission()) !== "granted") return say("denied");
  const registration = await navigator.serviceWorker.ready;
  const key = bytes(form.dataset.key);
  const kept = await registration.pushManager.getSubscription();
  const current = kept?.options?.applicationServerKey;
  // A subscription for another hub's key is of no use here.
  if (kept && !(current && same(new Uint8Array(current), key))) await kept.unsubscribe();
  const made = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const { endpoint, keys } = made.toJSON();
  form.elements.endpoint.value = endpoint;
  form.elements.p256dh.value = keys.p256dh;
  form.elements.auth.value = keys.auth;
  form.submit();
}

if (form) {
  const platform = navigator.userAgentData?.platform || navigator.platform || "";
  if (form.elements.name.value === "") form.elements.name.value = platform;
  if (!supported()) say("unsupported");
  else {
    form.hidden = false;
    if (Notification.permission === "denied") say("denied");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      subscribe().catch(() => say("failed"));
    });
  }
}

// A target that is removed here needs no subscription any more.
for (const remove of document.querySelectorAll("form[data-unsubscribe]")) {
  remove.addEventListener("submit", async (event) => {
    if (!supported()) return;
    event.preventDefault();
    const registration = await navigator.serviceWorker.getRegistration();
    await (await registration?.pushManager.getSubscription())?.unsubscribe().catch(() => {});
    remove.submit();
  });
}
