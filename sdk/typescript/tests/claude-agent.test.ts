// `remote_agent` in the Claude Agent SDK: the real library and its real program, with a scripted model on loopback.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Example, writeExamples } from "./readme.js";
import { World } from "./world.js";

const skip =
  process.env["ATTACHE_SDK_FRAMEWORKS"] === "yes"
    ? false
    : "pass --frameworks to download the program of the Claude Agent SDK";

interface Block {
  type: string;
  name?: string;
  content?: unknown;
  is_error?: boolean;
}

interface ModelRequest {
  messages: Array<{ role: string; content: string | Block[] }>;
  tools?: Array<{ name: string; input_schema: { properties: Record<string, unknown> } }>;
}

let world: World;
let model: Server;
const requests: ModelRequest[] = [];
const TOOL = "mcp__attache__remote_agent";

/** Calls the tool once, then repeats what it returned. */
function next(request: ModelRequest): Block & Record<string, unknown> {
  const blocks = request.messages.flatMap((message) => (Array.isArray(message.content) ? message.content : []));
  const result = blocks.findLast((block) => block.type === "tool_result");
  if (result) return { type: "text", text: `It says: ${JSON.stringify(result.content)}` };
  if (!request.tools?.some((tool) => tool.name === TOOL)) return { type: "text", text: "ok" };
  return { type: "tool_use", id: "toolu_1", name: TOOL, input: { agent: "clerk", task: "hello" } };
}

/** The streaming form of a message with one block. */
function stream(block: Record<string, unknown>): string {
  const isTool = block["type"] === "tool_use";
  const delta = isTool
    ? { type: "input_json_delta", partial_json: JSON.stringify(block["input"]) }
    : { type: "text_delta", text: block["text"] };
  const start = isTool ? { ...block, input: {} } : { type: "text", text: "" };
  const usage = { input_tokens: 1, output_tokens: 1 };
  const events = [
    {
      type: "message_start",
      message: {
        id: "msg_1",
        type: "message",
        role: "assistant",
        model: "scripted",
        content: [],
        stop_reason: null,
        stop_sequence: null,
        usage,
      },
    },
    { type: "content_block_start", index: 0, content_block: start },
    { type: "content_block_delta", index: 0, delta },
    { type: "content_block_stop", index: 0 },
    { type: "message_delta", delta: { stop_reason: isTool ? "tool_use" : "end_turn", stop_sequence: null }, usage },
    { type: "message_stop" },
  ];
  return events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");
}

before(async () => {
  if (skip) return;
  world = await World.start();
  await world.worker("clerk", (task) => `You said ${task.text}`);
  model = createServer(async (request, response) => {
    let text = "";
    for await (const chunk of request) text += String(chunk);
    if (!request.url?.startsWith("/v1/messages") || request.url.includes("count_tokens"))
      return response.writeHead(404).end("{}");
    const body = JSON.parse(text) as ModelRequest & { stream?: boolean };
    requests.push(body);
    const block = next(body);
    if (body.stream) return response.writeHead(200, { "content-type": "text/event-stream" }).end(stream(block));
    const usage = { input_tokens: 1, output_tokens: 1 };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(
      JSON.stringify({
        id: "msg_1",
        type: "message",
        role: "assistant",
        model: "scripted",
        content: [block],
        stop_reason: "end_turn",
        stop_sequence: null,
        usage,
      }),
    );
  }).listen(0, "127.0.0.1");
  await once(model, "listening");
});

after(async () => {
  model?.close();
  await world?.stop();
});

test("Claude gives an agent a task and gets its answer", { skip }, async () => {
  const { query } = await import("@anthropic-ai/claude-agent-sdk");
  const { REMOTE_AGENT, remoteAgentServer } = await import("@attache/sdk/claude-agent");
  assert.equal(REMOTE_AGENT, TOOL);
  const home = mkdtempSync(join(tmpdir(), "attache-sdk-claude-"));
  const env = {
    PATH: process.env["PATH"],
    HOME: home,
    CLAUDE_CONFIG_DIR: join(home, ".claude"),
    ANTHROPIC_BASE_URL: `http://127.0.0.1:${(model.address() as AddressInfo).port}`,
    ANTHROPIC_API_KEY: "scripted",
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
    DISABLE_AUTOUPDATER: "1",
    CLAUDE_CODE_MAX_RETRIES: "1",
  };
  try {
    const messages = [];
    const options = {
      cwd: home,
      env,
      settingSources: [],
      mcpServers: { attache: remoteAgentServer(world.client()) },
      allowedTools: [REMOTE_AGENT],
      maxTurns: 4,
    };
    for await (const message of query({ prompt: "Ask the clerk.", options })) messages.push(message);
    const last = messages.at(-1)!;
    assert.ok(last.type === "result" && last.subtype === "success", JSON.stringify(last));
    assert.match(last.result, /It says: .*You said hello/);
    const offered = requests.flatMap((request) => request.tools ?? []).find((tool) => tool.name === TOOL)!;
    assert.deepEqual(Object.keys(offered.input_schema.properties), [
      "task",
      "agent",
      "context",
      "call_id",
      "question_id",
      "answer",
    ]);
    assert.equal((await world.client().runs.list().all()).length, 1);

    // The same as the README does it.
    writeExamples();
    assert.match(await Example.run(world, "claude.mjs", [], env), /It says: .*You said hello/);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
});
