// Calls, results, questions, approvals, files and lists, against a real hub.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { A2AClient, CallFailedError, HubError, TaskFailure, UnreachableError } from "@attache/sdk";
import { World, collect, until } from "./world.js";

let world: World;
let client: A2AClient;

before(async () => {
  world = await World.start();
  client = world.client();
  await world.worker(
    "clerk",
    async (task) => {
      const [verb, ...words] = task.text.split(" ");
      switch (verb) {
        case "ask":
          return `They said ${(await task.ask(words.join(" "))).text}.`;
        case "approve": {
          const decision = await task.requireApproval({
            tool: "rm",
            input: { path: words[0] },
            risk: "high",
            reason: "it is old",
          });
          if (!decision.approved) throw new TaskFailure("permission_denied", `Not allowed: ${decision.comment}`);
          return `Removed ${words[0]} (${decision.scope}).`;
        }
        case "wait":
          await new Promise((_, reject) => task.signal.addEventListener("abort", () => reject(task.signal.reason)));
          return "never";
        case "refuse":
          throw new TaskFailure("refused", "I won't.");
        case "file": {
          const artifact = await task.client.artifacts.upload(task.workspaceId, "answer.txt", words.join(" "), {
            mediaType: "text/plain",
          });
          return {
            text: "See the file.",
            artifact_refs: [artifact.artifact_id],
            usage: { tokens: 12, cost_usd: 0.5 },
            details: { n: 1 },
          };
        }
        default:
          await task.progress("reading", { percent: 30 });
          await task.think("hm");
          await task.log("a line", "warn");
          await task.chunk("You said ");
          await task.chunk(task.text);
          return `You said ${task.text}`;
      }
    },
    { concurrency: 8 },
  );
});

after(() => world.stop());

test("a call waits for its answer", async () => {
  const reply = await client.call("clerk", "hello", { wait: true, context: { a: 1 } });
  assert.equal(reply.summary, "You said hello");
  assert.match(reply.call_id, /^a2a-[0-9a-f]{32}$/);
  assert.equal(typeof reply.stats.duration_ms, "number");
  const result = await client.getResult(reply.call_id);
  assert.deepEqual([result.status, result.result?.summary], ["completed", "You said hello"]);
});

test("watching shows every update in order, from the start or from a cursor", async () => {
  const { call_id: id } = await client.call("clerk", "hello");
  const events = await collect(client.watch(id));
  assert.deepEqual(
    events.map(({ type, data }) =>
      type === "message" ? [data.kind, data.text] : type === "progress" ? [type, data.goal, data.progress] : [type],
    ),
    [
      ["progress", "reading", 0.3],
      ["thought", "hm"],
      ["log", "a line"],
      ["chunk", "You said "],
      ["chunk", "hello"],
      ["completed"],
    ],
  );
  const rest = await collect(client.watch(id, { after: events[3]!.cursor }));
  assert.deepEqual(rest, events.slice(4));
  assert.deepEqual(await collect(client.watch(id, { after: events.at(-1)!.cursor })), []);
  const raw = await collect(client.runs.events(id));
  assert.deepEqual(
    raw.map((event) => event.seq),
    raw.map((_, index) => index + 1),
  );
  assert.equal(raw.at(-1)!.type, "task.completed");
});

test("a call that fails is an error with the agent's code", async () => {
  const error = await client.call("clerk", "refuse", { wait: true }).catch((error: unknown) => error);
  assert.ok(error instanceof CallFailedError);
  assert.deepEqual([error.code, error.message], ["refused", "I won't."]);
  assert.match(error.hint!, /attache watch run_/);
});

test("a cancelled call stops its agent", async () => {
  const { call_id: id } = await client.call("clerk", "wait");
  await until("the run", async () => (await client.getResult(id)).status === "running");
  assert.equal(await client.cancel(id, { reason: "not needed" }), "cancelled");
  assert.equal(await client.cancel(id), "cancelled", "again changes nothing");
  await assert.rejects(client.waitFor(id), { code: "cancelled", message: "not needed" });
});

test("a question is answered once", async () => {
  const { call_id: id } = await client.call("clerk", "ask which branch?");
  const question = await until("the question", async () => (await client.runs.get(id)).waits_for);
  assert.deepEqual([question.kind, question.what], ["input", "which branch?"]);
  for (let again = 0; again < 2; again++)
    await client.answer(id, "main", { input_request_id: question.id, idempotencyKey: `key-${id}` });
  assert.equal((await client.waitFor(id)).summary, "They said main.");
  await assert.rejects(
    client.answer(id, "late", { input_request_id: question.id }),
    (error: HubError) => error instanceof HubError && error.status === 409,
  );
});

test("approvals are listed and decided", async () => {
  for (const approved of [true, false]) {
    const { call_id: id } = await client.call("clerk", `approve a-${approved}.old`);
    const [request] = await until("the request", async () => {
      const pending = await client.approvals.list().all();
      return pending.length ? pending : undefined;
    });
    assert.deepEqual(
      [request!.tool, request!.input, request!.risk, request!.reason],
      ["rm", { path: `a-${approved}.old` }, "high", "it is old"],
    );
    if (approved) {
      await client.approvals.approve(request!.permission_request_id, { comment: "go" });
      assert.equal((await client.waitFor(id)).summary, "Removed a-true.old (once).");
    } else {
      const decided = await client.approvals.deny(request!.permission_request_id, { comment: "keep it" });
      assert.equal(decided.state, "denied");
      await assert.rejects(client.waitFor(id), { code: "permission_denied", message: "Not allowed: keep it" });
      await assert.rejects(client.approvals.approve(request!.permission_request_id), { code: "already_decided" });
    }
  }
  assert.deepEqual(await client.approvals.list().all(), []);
});

test("an agent hands over a file with its answer", async () => {
  const reply = await client.call("clerk", "file forty-two", { wait: true });
  const [id] = reply.artifact_refs as string[];
  const info = await client.artifacts.info(id!);
  assert.deepEqual([info.name, info.size, info.media_type], ["answer.txt", 9, "text/plain"]);
  assert.equal(await (await client.artifacts.download(id!)).text(), "forty-two");
  assert.deepEqual([reply.stats.tokens, reply.stats.cost], [12, 0.5]);
});

test("artifacts are uploaded from, and downloaded as, streams", async () => {
  const { workspace_id: workspace } = await client.conversations.create({ title: "files" });
  const bytes = new Uint8Array(300_000).map((_, index) => index * 7);
  const whole = new ReadableStream<Uint8Array>({
    start(controller) {
      for (let start = 0; start < bytes.length; start += 50_000) controller.enqueue(bytes.slice(start, start + 50_000));
      controller.close();
    },
  });
  const uploads = [
    await client.artifacts.upload(workspace, "ä b.bin", whole),
    await client.artifacts.upload(workspace, "b.bin", new Blob([bytes], { type: "image/png" })),
  ];
  assert.deepEqual(
    uploads.map(({ size, media_type }) => [size, media_type]),
    [
      [300_000, "application/octet-stream"],
      [300_000, "image/png"],
    ],
  );
  assert.equal(uploads[0]!.blake3, uploads[1]!.blake3);
  const download = await client.artifacts.download(uploads[0]!.artifact_id);
  assert.equal(download.size, 300_000);
  assert.deepEqual(await download.bytes(), bytes);
  const part = await client.artifacts.download(uploads[1]!.artifact_id, { start: 10, end: 20 });
  assert.deepEqual([part.size, await part.bytes()], [300_000, bytes.slice(10, 20)]);
  assert.equal((await client.artifacts.list(workspace).all()).length, 2);
});

test("conversations keep their messages and runs", async () => {
  const conversation = await client.conversations.create({ title: "plan" });
  await client.conversations.addMessage(conversation.conversation_id, { text: "first" });
  await client.call("clerk", "hello", { wait: true, conversation_id: conversation.conversation_id });
  const runs = await client.runs.list({ conversation_id: conversation.conversation_id }).all();
  assert.deepEqual(
    runs.map((run) => run.status),
    ["completed"],
  );
  const messages = await client.conversations.messages(conversation.conversation_id).all();
  assert.ok(
    messages.some((message) => message.text === "first"),
    JSON.stringify(messages),
  );
  await client.conversations.delete(conversation.conversation_id);
  await assert.rejects(client.conversations.get(conversation.conversation_id), { code: "not_found" });
});

test("lists follow their pages", async () => {
  for (let index = 0; index < 5; index++) await client.agents.create({ name: `paged-${index}` });
  const names = (await client.agents.list({ limit: 2 }).all()).map((agent) => agent.name);
  assert.deepEqual(
    names.filter((name) => name.startsWith("paged-")).sort(),
    [0, 1, 2, 3, 4].map((index) => `paged-${index}`),
  );
  assert.equal((await client.agents.update("paged-0", { description: "x" })).description, "x");
  assert.ok((await client.agents.archive("paged-0")).archived_at);
});

test("any endpoint can be requested, with types", async () => {
  const health = await client.request("GET /healthz");
  assert.equal(health.status, "ok");
  const usage = await client.request("GET /api/v1/usage", { query: { from: "2026-01-01", to: "2026-01-02" } });
  assert.deepEqual([usage.from, usage.rows], ["2026-01-01", []]);
});

test("refusals have a code and the next step", async () => {
  const error = await client.call("nobody", "hello").catch((error: unknown) => error);
  assert.ok(error instanceof HubError);
  assert.deepEqual([error.status, error.code], [404, "not_found"]);
  assert.match(error.message, /`nobody`/);
  assert.match(error.hint!, /clerk/);
  await assert.rejects(client.agents.create({ name: "clerk" }), { code: "name_taken", status: 409 });
  await assert.rejects(world.client({ key: "ak_wrong" }).agents.list().all(), { code: "unauthenticated", status: 401 });
});

test("the same idempotency key is the same run", async () => {
  const [one, two] = [
    await client.call("clerk", "once", { idempotencyKey: "k1" }),
    await client.call("clerk", "once", { idempotencyKey: "k1" }),
  ];
  assert.equal(one.call_id, two.call_id);
  await assert.rejects(client.call("clerk", "another", { idempotencyKey: "k1" }), { code: "idempotency_key_reused" });
  const [first, again] = [
    await client.runs.create({ agent_id: "clerk", input: { text: "x" }, idempotency_key: "k2" }),
    await client.runs.create({ agent_id: "clerk", input: { text: "x" }, idempotency_key: "k2" }),
  ];
  assert.equal(first.task_run_id, again.task_run_id);
});

test("a signal ends every wait at once", async () => {
  const { call_id: id } = await client.call("clerk", "wait");
  const reason = new Error("enough");
  for (const wait of [
    (signal: AbortSignal) => client.waitFor(id, { signal }),
    (signal: AbortSignal) => collect(client.watch(id, { signal })),
    (signal: AbortSignal) => collect(client.runs.events(id, { signal })),
    (signal: AbortSignal) => new A2AClient({ url: "http://127.0.0.1:9", key: "k" }).agents.get("x", { signal }),
  ]) {
    const began = Date.now();
    const abort = new AbortController();
    setTimeout(() => abort.abort(reason), 50);
    await assert.rejects(wait(abort.signal), reason);
    assert.ok(Date.now() - began < 2_000);
  }
  await client.cancel(id);
});

test("a hub that isn't there is an error that says so", async () => {
  const away = new A2AClient({ url: "http://127.0.0.1:9", key: "k", retryTimeoutMs: 300 });
  const error = await away.call("clerk", "hello").catch((error: unknown) => error);
  assert.ok(error instanceof UnreachableError);
  assert.equal(error.code, "unreachable");
  assert.match(error.message, /127\.0\.0\.1:9/);
});
