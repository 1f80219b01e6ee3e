// Agents on channels: tools of the caller, input, concurrency, stopping, and what ends a worker.
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { after, before, test } from "node:test";
import { Channel, TaskFailure, type A2AClient, type AttacheError, type Frame, type Notice } from "@attache/sdk";
import { World, collect, until } from "./world.js";

let world: World;
let client: A2AClient;

before(async () => {
  world = await World.start();
  client = world.client();
});

after(() => world.stop());

/** A caller on a channel that offers one tool. */
async function engine(agent: string, query: string, more: object = {}): Promise<{ calls: unknown[]; end: Frame }> {
  const calls: unknown[] = [];
  const closed = new AbortController();
  return new Promise((resolve, reject) => {
    const channel = new Channel({
      hub: client.hub,
      registration: () => ({
        peer_role: "host",
        tools: [
          {
            name: "read",
            description: "reads a file",
            input_schema: {
              type: "object",
              required: ["path"],
              properties: { path: { type: "string", format: "path" } },
            },
          },
        ],
      }),
      onFrame(frame) {
        const { action } = frame.payload;
        if (action === "call_tool") {
          calls.push(frame.payload["arguments"]);
          const isMissing = frame.payload["arguments"].path.endsWith("missing");
          void channel.respond(
            frame,
            isMissing
              ? { action, ok: false, error: { code: "no_such_file", message: "There is no such file." } }
              : { action, ok: true, result: { text: "content" } },
          );
        }
        if (action === "done" || action === "fail") {
          closed.abort();
          resolve({ calls, end: frame });
        }
      },
    });
    channel.run(closed.signal).catch(reject);
    channel
      .request({ action: "execute", query, allowed_tools: ["read"], workspace_root: "/srv", ...more }, { to: agent })
      .catch(reject);
  });
}

test("a task uses the tools of its caller", async () => {
  const tools: unknown[] = [];
  await world.worker(
    "reader",
    async (task) => {
      tools.push(...task.tools.map((tool) => tool.name));
      const result = await task
        .callTool("read", { path: task.text })
        .catch((error: Error) => `${(error as { code?: string }).code}`);
      return JSON.stringify(result);
    },
    { concurrency: 3 },
  );
  const found = await engine("reader", "/srv/a.txt");
  assert.deepEqual(
    [found.calls, found.end.payload["result_summary"]],
    [[{ path: "/srv/a.txt" }], '{"text":"content"}'],
  );
  assert.deepEqual(tools, ["read"]);
  const outside = await engine("reader", "/etc/passwd");
  assert.deepEqual(
    [outside.calls, outside.end.payload["result_summary"]],
    [[], '"tool_refused"'],
    "the hub checks it before the caller sees it",
  );
  const missing = await engine("reader", "/srv/missing");
  assert.deepEqual(missing.calls, [{ path: "/srv/missing" }]);
  assert.match(missing.end.payload["result_summary"], /no_such_file/);
});

test("a task gets what its caller sends unasked, and calls other agents", async () => {
  await world.worker("second", (task) => `second: ${task.text}`);
  await world.worker("first", async (task) => {
    const given = await until("input", () => task.unsolicited.shift());
    return (await task.call("second", given.text)).summary;
  });
  const { call_id: id } = await client.call("first", "go");
  await until("the claim", async () => (await client.getResult(id)).status === "running");
  await client.answer(id, "hello");
  assert.equal((await client.waitFor(id)).summary, "second: hello");
  const children = await client.runs.list({ parent_task_run_id: (await client.runs.get(id)).task_run_id }).all();
  assert.deepEqual(
    children.map((run) => run.agent_name),
    ["second"],
  );
});

test("long texts arrive whole, in pieces that never split a character", async () => {
  const text = "ä😀".repeat(40_000);
  await world.worker("talker", async (task) => {
    await task.chunk(text);
    return "said";
  });
  const { call_id: id } = await client.call("talker", "go");
  const events = await collect(client.watch(id));
  const chunks = events.flatMap((event) =>
    event.type === "message" && event.data.kind === "chunk" ? [event.data.text!] : [],
  );
  assert.ok(chunks.length > 1);
  assert.equal(chunks.join(""), text);
});

test("no more tasks at a time than agreed, and stopping finishes them", async () => {
  let [running, most] = [0, 0];
  const gates: Array<() => void> = [];
  const { worker, ended } = await world.worker(
    "parallel",
    async () => {
      most = Math.max(most, ++running);
      await new Promise<void>((resolve) => gates.push(resolve));
      running -= 1;
      return "ok";
    },
    { concurrency: 3 },
  );
  const calls = await Promise.all(Array.from({ length: 7 }, (_, index) => client.call("parallel", `${index}`)));
  await until("three at a time", () => running === 3);
  gates.shift()!();
  await until("the next one", () => gates.length === 3);
  const stopped = worker.stop();
  while (running) {
    gates.shift()?.();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await stopped;
  await ended;
  assert.equal(most, 3);
  const states = await Promise.all(calls.map(async (call) => (await client.getResult(call.call_id)).status));
  assert.deepEqual(states.sort(), [...Array(4).fill("completed"), ...Array(3).fill("started")]);
});

/** Each goes wrong in a way that TypeScript would refuse, or that shows only when the answer is sent. */
const WRONG: Record<string, () => unknown> = {
  number: () => 5,
  boolean: () => true,
  null: () => null,
  undefined: () => undefined,
  array: () => ["a"],
  object: () => ({ a: 1 }),
  bytes: () => new Uint8Array(3),
  text: () => ({ text: 5 }),
  bigint: () => ({ text: "x", size: 1n }),
  circular: () => {
    const output: Record<string, unknown> = { text: "x" };
    output["self"] = output;
    return output;
  },
  large: () => ({ text: "x", more: "x".repeat(5 << 20) }),
  code: () => {
    throw new TaskFailure("Not A Code!".repeat(1_000), "no disk");
  },
  message: () => {
    throw new Error("x".repeat(5 << 20));
  },
  wordless: () => {
    throw Object.create(null);
  },
};

test("whatever goes wrong ends the task and not the worker", async () => {
  const onNotice = (notice: Notice) => {
    notices.push(notice);
    if (notice.type !== "connected") throw new Error("a listener that fails");
  };
  const notices: Notice[] = [];
  await world.worker(
    "clumsy",
    async (task) => {
      // A report that can't be sent is lost, and nothing else.
      await task.progress("working", { percent: 1n as unknown as number });
      return (task.text in WRONG ? WRONG[task.text]!() : "fine") as string;
    },
    { onNotice },
    notices,
  );
  for (const kind of Object.keys(WRONG)) {
    const call = client.call("clumsy", kind, { wait: true, signal: AbortSignal.timeout(60_000) });
    await assert.rejects(call, (error: AttacheError) => {
      assert.equal(error.code, "task_failed", `${kind}: ${error.message}`);
      if (kind === "number") assert.match(error.message, /returned number\. Return a string or \{text, …\}\./);
      return true;
    });
  }
  assert.ok(notices.some((notice) => notice.type === "failed"));
  world.cable.cut();
  assert.equal((await client.call("clumsy", "go", { wait: true })).summary, "fine");
});

test("a second worker of the same agent ends the first", async () => {
  const { api_key: key } = await client.agents.register("contested");
  const { Worker } = await import("@attache/sdk");
  const options = { url: world.url, key, onNotice() {} };
  const stop = new AbortController();
  const first = new Worker(options, () => "first");
  const ended = first.run({ signal: stop.signal });
  await until("the first", async () => (await client.agents.get("contested")).status === "online");
  const second = new Worker(options, () => "second").run({ signal: stop.signal });
  await assert.rejects(ended, { code: "superseded" });
  assert.equal((await client.call("contested", "who?", { wait: true })).summary, "second");
  stop.abort();
  await second;
});

test("a wrong or replaced key ends a worker with the reason", async () => {
  const { Worker } = await import("@attache/sdk");
  await assert.rejects(new Worker({ url: world.url, key: "ak_wrong", onNotice() {} }, () => "").run(), {
    code: "unauthenticated",
  });
  const { ended } = await world.worker("renewed", () => "");
  await client.agents.register("renewed");
  await assert.rejects(
    ended,
    (error: { code: string }) => ["unauthenticated", "superseded"].includes(error.code) || assert.fail(error.code),
  );
});

/** The example, as its own process. */
class Counter {
  readonly lines: string[] = [];

  constructor(readonly child: ChildProcess) {
    child.stdout!.setEncoding("utf8").on("data", (text: string) => this.lines.push(...text.split("\n")));
  }

  says(start: string, from = 0): Promise<boolean> {
    return until(`the line ${start}`, () => this.lines.slice(from).some((line) => line.startsWith(start)));
  }
}

test("the example works, asks, and survives a disconnect", async () => {
  const { api_key: key } = await client.agents.register("counter");
  const file = fileURLToPath(new URL("../examples/counter.mjs", import.meta.url));
  const child = spawn(process.execPath, [file, world.url], {
    env: { ...process.env, AGENT_KEY: key },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const counter = new Counter(child);
  try {
    await counter.says("connected as agt_");
    const { call_id: id } = await client.call("counter", "one two three");
    const events = await collect(client.runs.events(id));
    const kinds = (type: string) => events.filter((event) => event.type === type);
    assert.equal(
      kinds("task.chunk")
        .map((event) => (event.data as { text: string }).text)
        .join(""),
      "one two three ",
    );
    assert.deepEqual(
      ["task.thought", "task.log", "task.progress"].map((type) => kinds(type).length),
      [1, 1, 3],
    );
    assert.equal((await client.waitFor(id)).summary, "3 words");
    for (const approved of [true, false]) {
      const { call_id: run } = await client.call("counter", `delete it ${approved}`);
      const [request] = await until("the request", async () => {
        const pending = await client.approvals.list().all();
        return pending.length && pending;
      });
      const from = counter.lines.length;
      world.cable.cut();
      await counter.says("disconnected", from);
      await client.approvals.decide(request!.permission_request_id, { approved });
      if (approved) assert.equal((await client.waitFor(run)).summary, "3 words");
      else await assert.rejects(client.waitFor(run), { code: "task_failed", message: "a person denied the request" });
      assert.equal((await client.runs.get(run)).epoch, 1);
    }
    assert.equal(child.exitCode, null, "it is still there");
  } finally {
    child.kill("SIGKILL");
    await once(child, "exit");
  }
});

test("a run whose worker's process dies starts again only if its caller allowed that", async () => {
  const { api_key: key } = await client.agents.register("mortal");
  const file = fileURLToPath(new URL("../examples/counter.mjs", import.meta.url));
  const start = () =>
    spawn(process.execPath, [file, world.url], { env: { ...process.env, AGENT_KEY: key }, stdio: "ignore" });
  const kill = (child: ChildProcess) => (child.kill("SIGKILL"), once(child, "exit"));
  let child = start();
  for (const max_attempts of [1, 2]) {
    const { task_run_id: id } = await client.runs.create({
      agent_id: "mortal",
      input: { text: "delete it" },
      max_attempts,
    });
    await until("the question", async () => (await client.runs.get(id)).waits_for);
    await kill(child);
    child = start();
    if (max_attempts === 1) {
      await assert.rejects(client.waitFor(id), { code: "runtime_lost" });
    } else {
      const again = await until("the question", async () => {
        const { epoch, waits_for: waits } = await client.runs.get(id);
        return epoch === 2 && waits;
      });
      await client.approvals.approve(again.id);
      assert.equal((await client.waitFor(id)).summary, "2 words");
    }
  }
  await kill(child);
});
