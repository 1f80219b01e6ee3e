// `remote_agent` in the Vercel AI SDK: the real library, with a scripted model.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { generateText, stepCountIs, type ModelMessage } from "ai";
import { MockLanguageModelV3 } from "ai/test";
import { remoteAgentTool } from "@attache/sdk/ai";
import { remoteAgent, type A2AClient, type RemoteAgentArguments, type RemoteAgentResult } from "@attache/sdk";
import { World, until } from "./world.js";

let world: World;
let client: A2AClient;

before(async () => {
  world = await World.start();
  client = world.client();
  await world.worker(
    "builder",
    async (task) => {
      if (task.text === "build") return `Built ${(await task.ask("Which branch?")).text}.`;
      if (task.text === "deploy") return String((await task.requireApproval({ tool: "deploy", input: {} })).approved);
      if (task.text === "wait")
        await new Promise<void>((resolve) => task.signal.addEventListener("abort", () => resolve()));
      if (task.text === "fail") throw new Error("no disk");
      return `You said ${task.text} (${JSON.stringify(task.input)}).`;
    },
    { concurrency: 4 },
  );
});

after(() => world.stop());

type Step = RemoteAgentArguments | string;
const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};

/** A model that decides its next step from the results of the tool so far. */
function scripted(next: (results: RemoteAgentResult[]) => Step): MockLanguageModelV3 {
  return new MockLanguageModelV3({
    doGenerate: async ({ prompt }) => {
      const results = prompt
        .flatMap((message) => (message.role === "tool" ? message.content : []))
        .flatMap((part) =>
          part.type === "tool-result" && part.output.type === "json"
            ? [part.output.value as unknown as RemoteAgentResult]
            : [],
        );
      const step = next(results);
      const isText = typeof step === "string";
      return {
        content: [
          isText
            ? { type: "text", text: step }
            : {
                type: "tool-call",
                toolCallId: `call-${results.length}`,
                toolName: "remote_agent",
                input: JSON.stringify(step),
              },
        ],
        finishReason: { unified: isText ? "stop" : "tool-calls", raw: undefined },
        usage,
        warnings: [],
      };
    },
  });
}

test("a model gives an agent a task, answers its question, and gets the answer", async () => {
  const model = scripted(([first, second]) => {
    if (!first) return { agent: "builder", task: "build" };
    if (!second) return { call_id: first.metadata.call_id, question_id: first.metadata.question_id, answer: "main" };
    return `The agent says: ${second.output}`;
  });
  const messages: ModelMessage[] = [{ role: "user", content: "Build it." }];
  const { text, steps } = await generateText({
    model,
    tools: { remote_agent: remoteAgentTool(client) },
    stopWhen: stepCountIs(5),
    messages,
  });
  assert.equal(text, "The agent says: Built main.");
  const outputs = steps
    .flatMap((step) => step.toolResults)
    .map((result) => (result.output as RemoteAgentResult).metadata.status);
  assert.deepEqual(outputs, ["input_required", "completed"]);
  const offered = model.doGenerateCalls[0]!.tools![0]!;
  assert.ok(offered.type === "function");
  assert.deepEqual(Object.keys(offered.inputSchema.properties!), [
    "task",
    "agent",
    "context",
    "call_id",
    "question_id",
    "answer",
  ]);
});

test("a fixed agent can't be changed by the model", async () => {
  const model = scripted(([first]) => (first ? first.output : { agent: "other", task: "hello" }));
  const { text } = await generateText({
    model,
    tools: { remote_agent: remoteAgentTool(client, { agent: "builder" }) },
    stopWhen: stepCountIs(3),
    prompt: "Go.",
  });
  assert.match(text, /^You said hello/);
  const offered = model.doGenerateCalls[0]!.tools![0]!;
  assert.ok(offered.type === "function" && !("agent" in offered.inputSchema.properties!));
});

test("aborting the generation ends the wait, not the work", async () => {
  const abort = new AbortController();
  const model = scripted(() => ({ agent: "builder", task: "wait" }));
  const generated = generateText({
    model,
    tools: { remote_agent: remoteAgentTool(client) },
    abortSignal: abort.signal,
    prompt: "Go.",
  });
  const [run] = await until("the run", async () => {
    const running = await client.runs.list({ status: "running" }).all();
    return running.length && running;
  });
  const abortedAt = Date.now();
  abort.abort();
  const [part] = (await generated).steps[0]!.content.filter((one) => one.type === "tool-error");
  assert.equal((part!.error as Error).name, "AbortError");
  assert.ok(Date.now() - abortedAt < 2_000);
  assert.equal((await client.runs.get(run!.task_run_id)).status, "running");
  await client.cancel(run!.task_run_id);
});

test("everything else a model can meet is a result with the next step", async () => {
  const ask = (given: RemoteAgentArguments) => remoteAgent(client, given, { waitMs: 500 });
  const nobody = await ask({ agent: "nobody", task: "x" });
  assert.deepEqual([nobody.metadata.status, nobody.metadata.code], ["failed", "not_found"]);
  assert.match(nobody.output, /builder/);
  assert.deepEqual((await ask({})).metadata, { status: "failed", call_id: undefined, code: "invalid_request" });
  const failed = await ask({ agent: "builder", task: "fail" });
  assert.deepEqual([failed.output, failed.metadata.code], ["Failed (task_failed): no disk", "task_failed"]);
  assert.match((await ask({ agent: "builder", task: "hi", context: "c" })).output, /"context":"c"/);
  const waiting = await ask({ agent: "builder", task: "wait" });
  assert.equal(waiting.metadata.status, "running");
  assert.ok(waiting.output.includes(waiting.metadata.call_id!));
  await client.cancel(waiting.metadata.call_id!);
  assert.equal((await ask({ call_id: waiting.metadata.call_id })).metadata.status, "cancelled");
  const approval = await ask({ agent: "builder", task: "deploy" });
  assert.equal(approval.metadata.status, "approval_required");
  const [request] = await client.approvals.list().all();
  await client.approvals.deny(request!.permission_request_id);
  assert.equal((await ask({ call_id: approval.metadata.call_id })).output, "false");
});
