// The package as users get it: what is in the tarball, the README's examples, the browser build, and TLS.
import assert from "node:assert/strict";
import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer, request as httpRequest } from "node:http";
import { connect, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { Example, INSTALLED, writeExamples } from "./readme.js";
import { World, until } from "./world.js";

const run = promisify(execFile);
const PACKAGE = join(INSTALLED, "node_modules/@attache/sdk");
let world: World;

before(async () => {
  world = await World.start();
});

after(() => world.stop());

test("the installed package has types, no dependencies, and nothing that isn't needed", () => {
  const manifest = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8"));
  assert.equal(manifest.dependencies, undefined);
  assert.deepEqual(readdirSync(PACKAGE).sort(), ["LICENSE", "README.md", "dist", "package.json"]);
  for (const [name, entry] of Object.entries<Record<string, string> | string>(manifest.exports)) {
    for (const file of typeof entry === "string" ? [entry] : Object.values(entry))
      assert.ok(existsSync(join(PACKAGE, file)), `${name}: ${file}`);
  }
  for (const file of readdirSync(join(PACKAGE, "dist")).filter((file) => file.endsWith(".js"))) {
    assert.ok(existsSync(join(PACKAGE, "dist", file.replace(/js$/, "d.ts"))), file);
  }
});

/** Every import of a module and of the modules it imports. */
function imports(file: string, seen = new Set<string>()): Set<string> {
  const code = readFileSync(file, "utf8");
  for (const [, name] of code.matchAll(/(?:from|import)\s*\(?\s*["']([^"']+)["']/g)) {
    const target = name!.startsWith(".") ? join(dirname(file), name!) : name!;
    if (seen.has(target)) continue;
    seen.add(target);
    if (name!.startsWith(".")) imports(target, seen);
  }
  return seen;
}

test("the browser build imports nothing of Node", () => {
  const outside = (file: string) =>
    [...imports(join(PACKAGE, "dist", file))].filter((name) => !name.startsWith(PACKAGE));
  assert.deepEqual(outside("index.js"), []);
  assert.deepEqual(outside("ai.js"), ["ai"]);
  // The check itself works: the build for Node does import.
  assert.ok(outside("node.js").includes("node:http"));
  const manifest = JSON.parse(readFileSync(join(PACKAGE, "package.json"), "utf8"));
  assert.equal(manifest.exports["."].default, "./dist/index.js");
});

test("the README's examples pass the strict type checker", async () => {
  writeExamples();
  writeFileSync(join(INSTALLED, "model.mjs"), SCRIPTED_MODEL);
  const compilerOptions = {
    allowJs: true,
    checkJs: true,
    strict: true,
    noEmit: true,
    module: "NodeNext",
    target: "ES2023",
    lib: ["ES2023", "DOM", "DOM.AsyncIterable"],
    types: ["node"],
    skipLibCheck: true,
  };
  writeFileSync(join(INSTALLED, "tsconfig.json"), JSON.stringify({ compilerOptions, include: ["*.mjs"] }));
  await run("../compiler/node_modules/.bin/tsc", ["-p", "."], { cwd: INSTALLED }).catch(({ stdout }) =>
    assert.fail(stdout),
  );
  // The declarations themselves, without skipping.
  const strict = { ...compilerOptions, skipLibCheck: false, allowJs: false, checkJs: false };
  writeFileSync(
    join(INSTALLED, "uses.ts"),
    'export * from "@attache/sdk";\nexport * from "@attache/sdk/adapter";\nexport * from "@attache/sdk/delegations";\n',
  );
  writeFileSync(
    join(INSTALLED, "tsconfig.strict.json"),
    JSON.stringify({ compilerOptions: { ...strict, types: [] }, include: ["uses.ts"] }),
  );
  await run("../compiler/node_modules/.bin/tsc", ["-p", "tsconfig.strict.json"], { cwd: INSTALLED }).catch(
    ({ stdout }) => assert.fail(stdout),
  );
});

/** Plants an oak, then repeats what the agent said. */
const SCRIPTED_MODEL = `// @ts-nocheck
import { MockLanguageModelV3 } from "ai/test";
const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
export const model = new MockLanguageModelV3({
  doGenerate: async ({ prompt }) => {
    const results = prompt.filter((m) => m.role === "tool").flatMap((m) => m.content).map((part) => part.output.value);
    const last = results.at(-1);
    const call = !last ? { agent: "gardener", task: "plant" } : last.metadata.question_id && { ...last.metadata, status: undefined, answer: "an oak" };
    const content = call ? { type: "tool-call", toolCallId: "c" + results.length, toolName: "remote_agent", input: JSON.stringify(call) } : { type: "text", text: "They said: " + last.output };
    return { content: [content], finishReason: { unified: call ? "tool-calls" : "stop" }, usage, warnings: [] };
  },
});
`;

test("the README's examples do what it says", async () => {
  const names = writeExamples();
  writeFileSync(join(INSTALLED, "model.mjs"), SCRIPTED_MODEL);
  // The last two are run by delegations.test and claude-agent.test.
  assert.deepEqual(names.sort(), [
    "adapter.mjs",
    "agent.mjs",
    "ai.mjs",
    "call.mjs",
    "claude.mjs",
    "delegate.mjs",
    "errors.mjs",
    "files.mjs",
    "watch.mjs",
  ]);
  const client = world.client();
  const agent = Example.start(world, "agent.mjs");
  await until("the agent", async () =>
    (await client.agents.list().all()).some(({ name, status }) => name === "gardener" && status === "online"),
  );
  assert.equal(await Example.run(world, "call.mjs"), "I don't know how to water the roses.\n");
  assert.match(agent.output, /^attache: connected to http:\/\/127\.0\.0\.1:\d+ as agt_\w+, waiting for tasks\.\n/);
  assert.equal(await Example.run(world, "watch.mjs"), "looking around\nPlanted: an oak.\n");
  assert.equal(
    await Example.run(world, "watch.mjs", ["remove old.txt"]),
    'looking around\nallowing rm {"path":"old.txt"}\nRemoved old.txt.\n',
  );
  assert.equal(await Example.run(world, "files.mjs"), "12 of 12 bytes\n");
  assert.match(
    await Example.run(world, "errors.mjs"),
    /^not_found - No agent has the name, skill or capability `nobody`\. .*gardener/,
  );
  assert.equal(await Example.run(world, "ai.mjs"), "They said: Planted: an oak.\n");
  assert.equal(await agent.stop(), 0, agent.output);

  const adapter = Example.start(world, "adapter.mjs", [], { PORT: "0" });
  const [, endpoint] = await until("the adapter", () => /--local-agent-endpoint (\S+)/.exec(adapter.output));
  const { pairing_code: code } = await client.agents
    .create({ name: "device" })
    .then(() => client.agents.pairingCode("device"));
  await world.attache(["runtime", "pair", code, "--api-base", world.url, "--local-agent-endpoint", endpoint!]);
  world.spawn(["runtime", "start"]);
  assert.equal((await client.call("device", "hello", { wait: true })).summary, "You said: hello");
  await adapter.stop();
});

test("a hub with a self-signed certificate is trusted by its certificate only", async () => {
  const data = join(world.home, "tls");
  const ready = join(world.home, "tls.ready");
  world.spawn(["hub", "--listen", "127.0.0.1:0", "--data", data, "--tls-self-signed", "--ready-file", ready]);
  await until("the hub", () => existsSync(ready) && readFileSync(ready, "utf8").includes("}"));
  const { url } = JSON.parse(readFileSync(ready, "utf8"));
  const certificate = join(data, "tls", "certificate.pem");
  const env = { ATTACHE_URL: url, ATTACHE_KEY: readFileSync(join(data, "admin.key"), "utf8").trim() };
  const agent = Example.start(world, "agent.mjs", [], { ...env, NODE_EXTRA_CA_CERTS: certificate });
  const call = () =>
    Example.run(world, "call.mjs", [], { ...env, NODE_EXTRA_CA_CERTS: certificate }).catch(
      (error: Error) => error.message,
    );
  assert.equal(
    await until("the agent", async () => !(await call()).includes("not_found") && call()),
    "I don't know how to water the roses.\n",
  );
  await agent.stop();
  const untrusted = await run(
    process.execPath,
    ["-e", `fetch("${url}/healthz").catch((error) => console.log(error.cause.code))`],
    { cwd: INSTALLED },
  );
  assert.match(untrusted.stdout, /SELF_SIGNED|UNABLE_TO_VERIFY/);
});

const browser = ["chromium", "chromium-browser", "google-chrome"].find(
  (name) => spawnSync("which", [name]).status === 0,
);

/** A page of the hub's own origin: calls itself through the hub, and posts what happened. */
const PAGE = `<!doctype html><script type="module">
const report = (body) => fetch("/sdk-test/result", { method: "POST", body: JSON.stringify(body) });
try {
  const { A2AClient, Worker } = await import("/sdk-test/dist/index.js");
  const key = decodeURIComponent(location.hash.slice(1));
  const client = new A2AClient({ url: location.origin, key });
  const { api_key } = await client.agents.register("page");
  const worker = new Worker({ url: location.origin, key: api_key }, async (task) => {
    for (let index = 0; index < 100; index++) { task.chunk(index + " "); await new Promise((resolve) => setTimeout(resolve, 5)); }
    return "done in " + (typeof process === "undefined" ? "a browser" : "Node");
  });
  const working = worker.run();
  const { call_id } = await client.call("page", "go");
  let text = "", summary = "";
  for await (const event of client.watch(call_id)) {
    if (event.data.kind === "chunk") text += event.data.text;
    if (event.type === "completed") summary = event.data.result.summary;
  }
  await worker.stop();
  await working;
  report({ text, summary });
} catch (error) { report({ error: String(error?.stack ?? error) }); }
</script>`;

test(
  "calls and workers in a real browser survive broken connections",
  { skip: !browser && "no Chromium on this machine" },
  async () => {
    let result: { text?: string; summary?: string; error?: string } | undefined;
    const front = createServer((request, response) => {
      if (request.url === "/sdk-test/result") {
        let body = "";
        request.on("data", (text) => (body += text)).on("end", () => ((result = JSON.parse(body)), response.end()));
      } else if (request.url === "/sdk-test/") {
        response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
      } else if (request.url?.startsWith("/sdk-test/dist/")) {
        response
          .writeHead(200, { "content-type": "text/javascript" })
          .end(readFileSync(join(PACKAGE, request.url.slice("/sdk-test/".length))));
      } else {
        const { method, url: path, headers } = request;
        const forwarded = httpRequest({ port: world.hubPort, host: "127.0.0.1", method, path, headers }, (answer) => {
          response.writeHead(answer.statusCode!, answer.headers);
          answer.on("error", () => response.destroy()).pipe(response);
        });
        forwarded.on("error", () => response.destroy());
        response.on("close", () => forwarded.destroy());
        request.pipe(forwarded);
      }
    });
    front.on("upgrade", (request, near, head) => {
      const far = connect(world.hubPort, "127.0.0.1");
      const lines = request.rawHeaders.flatMap((value, index, all) =>
        index % 2 ? [`${all[index - 1]}: ${value}`] : [],
      );
      far.write([`GET ${request.url} HTTP/1.1`, ...lines, "", ""].join("\r\n"));
      far.write(head);
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const)
        from
          .on("error", () => {})
          .on("close", () => to.destroy())
          .pipe(to);
    });
    front.listen(0, "127.0.0.1");
    await once(front, "listening");
    world.detour = (front.address() as AddressInfo).port;
    const profile = mkdtempSync(join(tmpdir(), "attache-sdk-browser-"));
    const page = `${world.url}/sdk-test/#${encodeURIComponent(world.key)}`;
    const child = spawn(
      browser!,
      [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        `--user-data-dir=${profile}`,
        page,
      ],
      { stdio: "ignore" },
    );
    try {
      const client = world.client();
      await until("the page's worker", async () => (await client.runs.list({ status: "running" }).all()).length);
      for (let cut = 0; cut < 3; cut++) {
        await new Promise((resolve) => setTimeout(resolve, 150));
        world.cable.cut();
      }
      await until("the page", () => result);
      assert.deepEqual(result, {
        text: Array.from({ length: 100 }, (_, index) => `${index} `).join(""),
        summary: "done in a browser",
      });
    } finally {
      child.kill("SIGKILL");
      await once(child, "exit");
      front.close();
      front.closeAllConnections();
      world.detour = undefined;
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    }
  },
);

test("a change of the API changes the generated types", async () => {
  const { render } = await import(pathToFileURL(join(INSTALLED, "../generate.mjs")).href);
  const document = await (await fetch(`${world.url}/api/v1/openapi.json`)).json();
  const generated = render(document);
  assert.equal(
    generated,
    readFileSync(join(INSTALLED, "../src/api.ts"), "utf8"),
    "the hub's own document is the committed one",
  );
  document.components.schemas.Account.properties.colour = { type: "string" };
  assert.notEqual(render(document), generated);
});
