// Cables are cut and the hub is killed in the middle: nothing is lost, and nothing happens twice.
import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { A2AClient, CallEvent } from "@attache/sdk";
import { World, collect, until } from "./world.js";

let world: World;
let client: A2AClient;

beforeEach(async () => {
  world = await World.start();
  client = world.client();
});

afterEach(() => world.stop());

const CHUNKS = 400;
const expected = Array.from({ length: CHUNKS }, (_, index) => `chunk ${index};`);

/** Works for about two seconds, and counts how often it was started. */
async function streamer(): Promise<{ starts: string[] }> {
  const starts: string[] = [];
  await world.worker("streamer", async (task) => {
    starts.push(task.id);
    for (const text of expected) {
      // Not awaited: what isn't acknowledged yet is sent again after a break.
      void task.chunk(text);
      await sleep(4);
    }
    return "done";
  });
  return { starts };
}

const chunks = (events: CallEvent[]) =>
  events.flatMap((event) => (event.type === "message" && event.data.kind === "chunk" ? [event.data.text] : []));

async function checkRun(id: string): Promise<void> {
  const run = await client.runs.get(id);
  assert.deepEqual([run.status, run.epoch, run.attempt], ["completed", 1, 1], "one claim, from beginning to end");
  const events = await collect(client.runs.events(id));
  assert.deepEqual(
    events.filter((event) => event.type === "task.chunk").map((event) => (event.data as { text: string }).text),
    expected,
  );
}

test("a worker and a watcher survive cables that keep breaking", async () => {
  const { starts } = await streamer();
  const { call_id: id } = await client.call("streamer", "go");
  world.cable.cutEvery(40_000);
  const events = await collect(client.watch(id));
  world.cable.cutEvery(0);
  assert.ok(world.cable.cuts >= 3, `only ${world.cable.cuts} cuts`);
  assert.deepEqual(chunks(events), expected);
  assert.deepEqual(events.at(-1)!.type, "completed");
  assert.equal(new Set(events.map((event) => event.cursor)).size, events.length);
  assert.deepEqual(starts.length, 1);
  await checkRun(id);
});

for (const [name, signal] of [
  ["killed", "SIGKILL"],
  ["stopped", "SIGTERM"],
] as const)
  test(`a hub ${name} twice in the middle loses and repeats nothing`, async () => {
    const { starts } = await streamer();
    const { call_id: id } = await client.call("streamer", "go");
    const watched = collect(client.watch(id));
    const waited = client.waitFor(id);
    for (let restart = 0; restart < 2; restart++) {
      await sleep(400);
      await world.restartHub(signal);
    }
    const events = await watched;
    assert.deepEqual(chunks(events), expected);
    assert.equal((await waited).summary, "done");
    assert.equal(starts.length, 1);
    await checkRun(id);
  });

test("a decision and an answer reach a worker over a new connection to a new hub", async () => {
  await world.worker("asker", async (task) => {
    const decision = await task.requireApproval({ tool: "deploy", input: { to: "production" } });
    const branch = await task.ask("which branch?");
    return `${decision.approved} ${decision.comment} ${branch.text}`;
  });
  const { call_id: id } = await client.call("asker", "go");
  const [request] = await until("the request", async () => {
    const pending = await client.approvals.list().all();
    return pending.length && pending;
  });
  await world.restartHub();
  await client.approvals.approve(request!.permission_request_id, { comment: "ok" });
  const question = await until("the question", async () => {
    const { waits_for: waits } = await client.runs.get(id);
    return waits?.kind === "input" && waits;
  });
  world.cable.isUnplugged = true;
  world.cable.cut();
  await world.restartHub();
  const answered = client.answer(id, "main", { input_request_id: question.id });
  await sleep(300);
  world.cable.isUnplugged = false;
  await answered;
  assert.equal((await client.waitFor(id)).summary, "true ok main");
  const asked = [
    ...(await client.approvals.list().all()),
    ...(await client.approvals.list({ state: "approved" }).all()),
  ];
  assert.deepEqual(
    asked.map((one) => one.permission_request_id),
    [request!.permission_request_id],
    "it asked once",
  );
});

/** The hub gets every request, but the first response to each is lost. */
function lossy(method: string): typeof fetch {
  const lost = new Set<string>();
  return async (input, init) => {
    const response = await fetch(input, init);
    const id = `${String(input)} ${new Headers(init?.headers).get("idempotency-key")} ${String(init?.body)}`;
    if (init?.method !== method || lost.has(id)) return response;
    lost.add(id);
    throw new TypeError("fetch failed");
  };
}

test("calls whose responses are lost are made once", async () => {
  const starts: string[] = [];
  await world.worker("counter", (task) => (starts.push(task.text), task.text), { concurrency: 4 });
  const unlucky = world.client({ fetch: lossy("POST") });
  world.cable.cutEvery(8_000);
  const replies = await Promise.all(
    Array.from({ length: 20 }, async (_, index) => {
      await sleep(index * 25);
      return unlucky.call("counter", `task ${index}`, { wait: true });
    }),
  );
  world.cable.cutEvery(0);
  assert.ok(world.cable.cuts >= 2, `only ${world.cable.cuts} cuts`);
  assert.deepEqual(
    replies.map((reply) => reply.summary),
    replies.map((_, index) => `task ${index}`),
  );
  assert.equal((await client.runs.list().all()).length, 20, "no second run");
  assert.equal(starts.length, 20, "no task was given to the agent twice");
});

const ACK = '"action":"ack"';
for (const [name, texts, opening] of [
  // The hub has the reports and has used up the token: the worker must register again, and send the reports again.
  ["resume", [ACK, '"action":"resume","ok":true'], "registered"],
  ["done", ['"action":"done","ok":true'], "resumed"],
  ["a report", [ACK, ACK], "resumed"],
  ["a question", ['"action":"require_approval","ok":true'], "resumed"],
] as const) {
  test(`the lost answer to ${name} loses and repeats nothing`, async () => {
    let starts = 0;
    const { notices } = await world.worker("unlucky", async (task) => {
      starts += 1;
      const { approved } = await task.requireApproval({ tool: "rm", input: {} });
      for (const text of expected) void task.chunk(text);
      return `approved: ${approved}`;
    });
    const { call_id: id } = await client.call("unlucky", "go");
    const [request] = await until("the request", async () => {
      const pending = await client.approvals.list().all();
      return pending.length && pending;
    });
    world.cable.cutOn(...texts);
    await client.approvals.approve(request!.permission_request_id);
    assert.equal((await client.waitFor(id)).summary, "approved: true");
    await until("the answer to `done`", () => notices.some((notice) => notice.type === "ended"));
    assert.ok(world.cable.hasCutOnAll);
    assert.deepEqual(
      notices.flatMap((notice) => (notice.type === "connected" ? [notice.opening] : [])).at(-1),
      opening,
    );
    assert.equal(starts, 1);
    await checkRun(id);
    assert.equal((await client.approvals.list({ state: "approved" }).all()).length, 1);
  });
}

test("a request that can't be repeated safely isn't", async () => {
  const unlucky = world.client({ fetch: lossy("POST") });
  await assert.rejects(unlucky.conversations.create({ title: "one" }), { code: "unreachable" });
  assert.equal((await client.conversations.list().all()).length, 1);
});

test("a download continues where the cable was cut", async () => {
  const { workspace_id: workspace } = await client.conversations.create();
  const bytes = new Uint8Array(3_000_000).map((_, index) => (index * 31) >> 3);
  const { artifact_id: id } = await client.artifacts.upload(workspace, "big.bin", bytes);
  world.cable.cutEvery(900_000);
  const download = await client.artifacts.download(id);
  assert.deepEqual(Buffer.from(await download.bytes()).equals(Buffer.from(bytes)), true);
  assert.ok(world.cable.cuts >= 2, `only ${world.cable.cuts} cuts`);
});

test("a worker that was away while its task was cancelled stops", async () => {
  let reason: unknown;
  const { notices } = await world.worker("sleeper", async (task) => {
    await new Promise<void>((resolve) => task.signal.addEventListener("abort", () => resolve()));
    reason = task.signal.reason;
    return "never";
  });
  const { call_id: id } = await client.call("sleeper", "go");
  await until("the start", () => notices.some((notice) => notice.type === "started"));
  // The run is cancelled while the worker may still be reconnecting.
  await world.restartHub();
  await client.cancel(id);
  await until("the abort", () => reason);
  assert.equal((reason as Error).name, "TaskCancelled");
  // It takes the next task.
  const { call_id: next } = await client.call("sleeper", "go");
  await until("the next start", async () => (await client.getResult(next)).status === "running");
  await client.cancel(next);
});

test("connections that die in silence are noticed and replaced", async () => {
  const patient = world.client({ idleTimeoutMs: 1_000, timeoutMs: 1_000 });
  let proceed = () => {};
  const opened = new Promise<void>((resolve) => (proceed = resolve));
  const { notices } = await world.worker(
    "quiet",
    async (task) => {
      await task.chunk("before ");
      await opened;
      await task.chunk("after");
      return "done";
    },
    { heartbeatMs: 500 },
  );
  const { call_id: id } = await client.call("quiet", "go");
  const watched = collect(patient.watch(id));
  await until("the first chunk", async () => (await client.runs.get(id)).last_seq >= 3);
  // A worker that only waits asks for signs of life, and gets them.
  await sleep(1_500);
  assert.deepEqual(
    notices.filter((notice) => notice.type === "broken"),
    [],
  );
  world.cable.freeze();
  proceed();
  assert.deepEqual(chunks(await watched), ["before ", "after"]);
  assert.deepEqual(
    notices.flatMap((notice) => (notice.type === "connected" ? [notice.opening] : [])),
    ["registered", "resumed"],
  );
});

test("a quiet stream may break as often as it likes, but a hub may not be away for too long", async () => {
  const impatient = world.client({ retryTimeoutMs: 800 });
  const { notices } = await world.worker("quiet", async (task) => {
    await new Promise<void>((resolve) => task.signal.addEventListener("abort", () => resolve()));
    return "never";
  });
  const { call_id: id } = await client.call("quiet", "go");
  await until("the start", () => notices.some((notice) => notice.type === "started"));
  const watched = collect(impatient.watch(id));
  for (let cut = 0; cut < 5; cut++) {
    await sleep(400);
    world.cable.cut();
  }
  await sleep(200);
  await client.cancel(id);
  assert.deepEqual(
    (await watched).map((event) => event.type),
    ["failed"],
  );

  const other = await client.call("quiet", "go");
  const failing = impatient.watch(other.call_id).next();
  await sleep(200);
  world.cable.isUnplugged = true;
  world.cable.cut();
  await assert.rejects(failing, { code: "unreachable" });
  world.cable.isUnplugged = false;
});
