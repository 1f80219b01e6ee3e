// The service worker: says so when the hub can't be reached, and shows notifications. It keeps nothing of a page: the
// cache holds the offline page and what that needs, which are the same for everybody.
const CACHE = `shell ${BASE}`;
const OFFLINE = "/offline";
const SHELL = [OFFLINE, `${BASE}/style.css`, `${BASE}/icon.svg`, `${BASE}/offline.js`];

self.addEventListener("install", (event) => event.waitUntil(install()));
self.addEventListener("activate", (event) => event.waitUntil(activate()));

async function install() {
  const cache = await caches.open(CACHE);
  await cache.addAll(SHELL.map((path) => new Request(path, { cache: "reload" })));
  await self.skipWaiting();
}

async function activate() {
  for (const name of await caches.keys()) if (name !== CACHE) await caches.delete(name);
  await self.clients.claim();
}

// What passes through here looks to the hub as if the console itself had sent it. So forms, and the sign-in page with its
// links, go their own way: the hub must see when another site sends them.
self.addEventListener("fetch", (event) => {
  const { request } = event;
  const { pathname } = new URL(request.url);
  if (request.method !== "GET" || pathname.startsWith("/login")) return;
  if (request.mode === "navigate") event.respondWith(fetch(request).catch(() => offline()));
  else if (SHELL.slice(1).includes(pathname)) {
    event.respondWith(caches.match(request).then((kept) => kept ?? fetch(request)));
  }
});

async function offline() {
  return (await caches.match(OFFLINE)) ?? Response.error();
}

// --- notifications

self.addEventListener("push", (event) => event.waitUntil(show(event.data)));

// A browser demands that every message is shown, so an unreadable one is too.
async function show(data) {
  let sent = {};
  try {
    sent = data.json() ?? {};
  } catch {
    // The title below says enough.
  }
  const text = (value, other) => (typeof value === "string" ? value : other);
  const actions = (Array.isArray(sent.actions) ? sent.actions : []).filter(
    (one) => typeof one?.action === "string" && typeof one.title === "string",
  );
  await self.registration.showNotification(text(sent.title, "Attaché"), {
    body: text(sent.body, ""),
    tag: text(sent.tag, "attache"),
    renotify: true,
    icon: `${BASE}/icon.svg`,
    actions: actions.slice(0, 2).map(({ action, title }) => ({ action, title })),
    data: {
      path: text(sent.path, "/inbox"),
      tickets: Object.fromEntries(actions.filter((one) => one.ticket).map((one) => [one.action, one.ticket])),
      texts: sent.texts ?? {},
    },
  });
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(act(event.notification, event.action));
});

// A button decides with this browser's session. If that has ended, or the hub refuses, the page says why.
async function act({ data, tag, title }, action) {
  const { path = "/inbox", tickets = {}, texts = {} } = data ?? {};
  const ticket = Object.hasOwn(tickets, action) ? tickets[action] : undefined;
  if (!ticket) return open(path);
  let decided = false;
  try {
    const answer = await fetch("/notifications/decide", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ticket }),
      redirect: "error",
    });
    decided = answer.ok;
    if (!decided) return await open(path);
  } catch {
    // Shown below.
  }
  const said = decided ? texts[action] : texts.failed;
  await self.registration.showNotification(said ?? title, { body: title, tag, silent: true, icon: `${BASE}/icon.svg`, data: { path } });
}

// Only a page of ours.
async function open(path) {
  const url = new URL(path, self.location.origin);
  if (url.origin !== self.location.origin) return;
  for (const client of await self.clients.matchAll({ type: "window", includeUncontrolled: true })) {
    if (new URL(client.url).pathname === url.pathname) return void (await client.focus());
  }
  await self.clients.openWindow(url.href);
}
