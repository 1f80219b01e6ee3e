// An adapter behind a real runtime, and the rules of docs/adapter.md that the runtime doesn't exercise.
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { TaskFailure, type A2AClient } from "@attache/sdk";
import { serveAdapter, type Adapter, type AdapterOptions, type AdapterTask } from "@attache/sdk/adapter";
import { World, collect, until } from "./world.js";

let world: World;
let client: A2AClient;
const starts: string[] = [];

async function agent(
  task: AdapterTask,
): Promise<string | { text: string; artifact_refs: unknown[]; usage: { tokens: number } }> {
  starts.push(task.text);
  const [verb, ...words] = task.text.split(" ");
  switch (verb) {
    case "approve": {
      const decision = await task.requireApproval({
        tool: "shell",
        input: { command: words.join(" ") },
        cwd: task.cwd ?? undefined,
        risk: "high",
      });
      if (!decision.approved) throw new TaskFailure("permission_denied", "Not allowed.");
      return `ran ${words.join(" ")}: ${decision.comment}`;
    }
    case "ask":
      return (await task.ask(words.join(" "))).text;
    case "wait":
      await new Promise<void>((resolve) => task.signal.addEventListener("abort", () => resolve()));
      return "never";
    case "file":
      writeFileSync(join(task.cwd!, "out.txt"), words.join(" "));
      return {
        text: "See out.txt.",
        artifact_refs: [{ path: "out.txt", media_type: "text/plain" }],
        usage: { tokens: 7 },
      };
    case "slowly":
      for (const word of words) {
        await task.chunk(`${word} `);
        await sleep(100);
      }
      return words.join(" ");
    default:
      await task.progress("working", { percent: 50 });
      await task.think("hm");
      await task.log("line");
      for (const word of task.text.split(" ")) await task.chunk(`${word} `);
      return `${words.length + 1} words`;
  }
}

before(async () => {
  world = await World.start();
  client = world.client();
  process.env["A2A_HOME"] = world.env["A2A_HOME"];
});

after(() => world.stop());

async function paired(name: string, endpoint: string): Promise<string> {
  const cwd = join(world.home, `work-${name}`);
  mkdirSync(cwd, { recursive: true });
  await client.agents.create({ name });
  const { pairing_code: code } = await client.agents.pairingCode(name);
  const home = { A2A_HOME: world.env["A2A_HOME"]! };
  await world.attache(
    ["runtime", "pair", code, "--api-base", world.url, "--local-agent-endpoint", endpoint, "--cwd", cwd],
    home,
  );
  const ready = join(world.home, `${name}.ready`);
  world.spawn(["runtime", "start", "--ready-file", ready], home);
  await until("the runtime", () => existsSync(ready));
  return cwd;
}

test("tasks of a hub reach the adapter through a runtime", async () => {
  const adapter = await serveAdapter(agent, { asks: true, type: "sdk", version: "1" });
  await paired("device", adapter.url);
  const { call_id: id } = await client.call("device", "one two three");
  const events = await collect(client.watch(id));
  const texts = (kind: string) =>
    events.flatMap((event) => (event.type === "message" && event.data.kind === kind ? [event.data.text] : [])).join("");
  assert.deepEqual([texts("chunk"), texts("thought"), texts("log")], ["one two three ", "hm", "line"]);
  assert.equal((await client.waitFor(id)).summary, "3 words");

  const approval = await client.call("device", "approve make");
  const [request] = await until("the request", async () => {
    const pending = await client.approvals.list().all();
    return pending.length && pending;
  });
  assert.deepEqual([request!.tool, request!.input], ["shell", { command: "make" }]);
  await client.approvals.approve(request!.permission_request_id, { comment: "fine" });
  assert.equal((await client.waitFor(approval.call_id)).summary, "ran make: fine");

  const question = await client.call("device", "ask which?");
  await until("the question", async () => (await client.runs.get(question.call_id)).waits_for);
  await client.answer(question.call_id, "this one");
  assert.equal((await client.waitFor(question.call_id)).summary, "this one");

  const file = await client.call("device", "file hello", { wait: true });
  const [artifact] = file.artifact_refs as string[];
  assert.equal(await (await client.artifacts.download(artifact!)).text(), "hello");
  assert.equal(file.stats.tokens, 7);

  const waiting = await client.call("device", "wait");
  await until("the start", () => starts.at(-1) === "wait");
  await client.cancel(waiting.call_id);
  await assert.rejects(client.waitFor(waiting.call_id), { code: "cancelled" });

  // The hub is killed while the adapter works: the task isn't started again.
  const slow = await client.call("device", "slowly a b c d e f g h");
  await until("the start", () => starts.at(-1)?.startsWith("slowly"));
  await world.restartHub();
  assert.equal((await client.waitFor(slow.call_id)).summary, "a b c d e f g h");
  assert.equal(starts.filter((text) => text.startsWith("slowly")).length, 1);
  await adapter.close();
});

const RUN = {
  task_run_id: "run_019a8e6bd0c57c3f9a55b7a1c2d3e4f5",
  conversation_id: "cnv_1",
  workspace_id: "wsp_1",
  task_type: "prompt",
};

async function withAdapter(
  options: AdapterOptions,
  body: (
    adapter: Adapter,
    post: (path: string, body?: unknown, headers?: Record<string, string>) => Promise<Response>,
  ) => Promise<void>,
): Promise<void> {
  const adapter = await serveAdapter(agent, { secret: false, ...options });
  try {
    await body(adapter, (path, content = {}, headers = {}) =>
      fetch(adapter.url + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(content),
      }),
    );
  } finally {
    await adapter.close();
  }
}

test("one task at a time, rejoined by its id, with its outcome kept", () =>
  withAdapter({}, async (adapter, post) => {
    const first = post("/run-task", { ...RUN, input: { text: "slowly a b c" } });
    await until(
      "the start",
      async () => (await (await fetch(`${adapter.url}/health`)).json()).running === RUN.task_run_id,
    );
    const busy = await post("/run-task", { ...RUN, task_run_id: "run_other", input: { text: "x" } });
    assert.deepEqual([busy.status, (await busy.json()).error.code], [409, "busy"]);
    const joined = await post(
      "/run-task",
      { ...RUN, input: { text: "slowly a b c" } },
      { accept: "text/event-stream" },
    );
    assert.equal(joined.headers.get("content-type"), "text/event-stream");
    const events = await joined.text();
    assert.match(events, /^id: 1\nevent: chunk\ndata: {"text":"a "}/);
    assert.match(events, /event: result\ndata: {"success":true,"output":{"text":"a b c","artifact_refs":\[\]}}\n\n$/);
    const expected = { success: true, output: { text: "a b c", artifact_refs: [] } };
    assert.deepEqual(await (await first).json(), expected);
    const before = starts.length;
    assert.deepEqual(await (await post("/run-task", { ...RUN, input: { text: "slowly a b c" } })).json(), expected);
    assert.equal(starts.length, before, "it wasn't executed again");
    const last = Number(/id: (\d+)\nevent: result/.exec(events)![1]);
    const rest = await (
      await fetch(`${adapter.url}/run-task/${RUN.task_run_id}/events`, {
        headers: { "last-event-id": String(last - 1) },
      })
    ).text();
    assert.equal(rest.match(/^id: /gm)!.length, 1);
    const ahead = await (
      await fetch(`${adapter.url}/run-task/${RUN.task_run_id}/events`, { headers: { "last-event-id": "999" } })
    ).text();
    assert.equal(ahead, events, "an id from before a restart replays everything");
  }));

test("failures, cancelling and deadlines are outcomes", () =>
  withAdapter({}, async (adapter, post) => {
    const denied = post("/run-task", { ...RUN, input: { text: "approve rm" } });
    const path = `/run-task/${RUN.task_run_id}`;
    await until("the question", async () => (await post(`${path}/permission/q1`, { approved: false })).status === 200);
    assert.equal(
      (await post(`${path}/permission/q1`, { approved: true })).status,
      200,
      "a repeated answer changes nothing",
    );
    assert.equal((await post(`${path}/permission/q9`, { approved: true })).status, 404);
    assert.deepEqual(await (await denied).json(), {
      success: false,
      error: { code: "permission_denied", message: "Not allowed." },
    });

    const task = { ...RUN, task_run_id: "run_cancelled", input: { text: "wait" } };
    const open = post("/run-task", task);
    await until("the start", async () => (await (await fetch(`${adapter.url}/health`)).json()).running);
    const cancelled = { success: false, error: { code: "cancelled", message: "the run was cancelled" } };
    assert.deepEqual(await (await post("/run-task/run_cancelled/cancel")).json(), cancelled);
    assert.deepEqual(await (await open).json(), cancelled);
    assert.equal((await post("/run-task/run_unknown/cancel")).status, 404);

    const late = await post("/run-task", {
      ...RUN,
      task_run_id: "run_late",
      input: { text: "wait" },
      deadline: new Date(Date.now() + 300).toISOString(),
    });
    assert.deepEqual((await late.json()).error.code, "timed_out");

    // A question stops the clock.
    const asking = post("/run-task", {
      ...RUN,
      task_run_id: "run_asking",
      input: { text: "ask which?" },
      deadline: new Date(Date.now() + 300).toISOString(),
    });
    await sleep(600);
    assert.equal((await post("/run-task/run_asking/input", { parts: [{ text: "this" }] })).status, 200);
    assert.equal((await (await asking).json()).output.text, "this");
  }));

test("whatever goes wrong ends the task and not the adapter", async () => {
  const circular: Record<string, unknown> = { text: "x" };
  circular["self"] = circular;
  const wrong: Record<string, unknown> = {
    number: 5,
    null: null,
    undefined: undefined,
    bytes: new Uint8Array(3),
    object: { a: 1 },
    bigint: { text: "x", size: 1n },
    circular,
  };
  const handler = (task: AdapterTask) => (task.text in wrong ? wrong[task.text] : "fine") as string;
  const adapter = await serveAdapter(handler, { secret: false });
  const run = async (text: string) => {
    const response = await fetch(`${adapter.url}/run-task`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...RUN, task_run_id: `run_${text}`, input: { text } }),
      signal: AbortSignal.timeout(30_000),
    });
    return response.json();
  };
  for (const text of Object.keys(wrong)) {
    const { success, error } = await run(text);
    assert.deepEqual([success, error?.code], [false, "task_failed"], text);
    if (text === "bytes")
      assert.equal(
        error.message,
        "The agent's function returned an object without a text. Return a string or {text, …}.",
      );
  }
  assert.equal((await (await fetch(`${adapter.url}/health`)).json()).running, null);
  assert.deepEqual(await run("last"), { success: true, output: { text: "fine", artifact_refs: [] } });
  await adapter.close();
});

test("a restarted adapter keeps its secret, and a damaged one is replaced", async () => {
  const free = await serveAdapter(agent);
  const port = Number(new URL(free.url).port);
  const folder = join(process.env["A2A_HOME"]!, "adapters");
  const file = join(folder, `127.0.0.1_${port}`);
  const ofFreePort = readFileSync(file, "utf8");
  await free.close();
  assert.ok(!existsSync(file), "a secret of a free port ends with its adapter");

  const secrets: string[] = [ofFreePort];
  const restart = async () => {
    const adapter = await serveAdapter(agent, { port });
    const secret = readFileSync(file, "utf8");
    assert.equal(statSync(file).mode & 0o777, 0o600);
    const headers = { authorization: `Bearer ${secret.trim()}` };
    assert.equal((await (await fetch(`${adapter.url}/health`, { headers })).json()).host.type, "custom");
    await adapter.close();
    return secret;
  };
  secrets.push(await restart());
  chmodSync(file, 0o644);
  assert.equal(await restart(), secrets[1]);
  for (const damaged of ["", "\n", "two words\n", "\0\0\0"]) {
    writeFileSync(file, damaged);
    secrets.push(await restart());
  }
  assert.equal(new Set(secrets).size, secrets.length, "each is a new one");
  assert.ok(secrets.every((secret) => /^[0-9a-f]{64}\n$/.test(secret)));
  assert.deepEqual(
    readdirSync(folder).filter((name) => name.startsWith(".")),
    [],
  );
});

test("web pages, other hosts and strangers are refused", async () => {
  await withAdapter({}, async (adapter, post) => {
    const task = { ...RUN, input: { text: "x" } };
    const code = async (response: Response) => [response.status, (await response.json()).error.code];
    assert.deepEqual(await code(await post("/run-task", task, { origin: "https://evil.example" })), [
      403,
      "foreign_origin",
    ]);
    assert.deepEqual(await code(await post("/run-task", task, { "content-type": "text/plain" })), [
      415,
      "unsupported_media_type",
    ]);
    assert.deepEqual(await code(await post("/run-task", { input: {} })), [400, "invalid_request"]);
    assert.deepEqual(await code(await fetch(`${adapter.url}/run-task`)), [405, "method_not_allowed"]);
    assert.deepEqual(await code(await post("/nothing", task)), [404, "no_such_path"]);
    const { request } = await import("node:http");
    const status = await new Promise<number>((resolve) =>
      request(adapter.url + "/health", { headers: { host: "evil.example" } }, (response) =>
        resolve(response.statusCode!),
      ).end(),
    );
    assert.equal(status, 421);
  });
  const adapter = await serveAdapter(agent, {});
  const file = join(process.env["A2A_HOME"]!, "adapters", new URL(adapter.url).host.replace(":", "_"));
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.deepEqual(await (await fetch(`${adapter.url}/health`)).json(), { ok: true });
  const refused = await fetch(`${adapter.url}/run-task`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  assert.deepEqual([refused.status, (await refused.json()).error.code], [401, "unauthenticated"]);
  const trusted = await fetch(`${adapter.url}/health`, {
    headers: { authorization: `Bearer ${readFileSync(file, "utf8").trim()}` },
  });
  assert.equal((await trusted.json()).host.type, "custom");
  await adapter.close();
});
