// An adapter: the small HTTP service on a device through which `attache runtime` gives tasks to your agent
// (docs/adapter.md).
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { homedir } from "node:os";
import { basename, dirname, join } from "node:path";
import { AdapterRun, type AdapterTask, type RunTask } from "./adapter-run.js";
import type { TaskHandler } from "./task.js";

export type { AdapterTask } from "./adapter-run.js";

export interface AdapterOptions {
  /** Default: a free port. */
  port?: number;
  /** A loopback address. Default: 127.0.0.1. */
  host?: "127.0.0.1" | "::1";
  /**
   * What callers must know, because every program on this machine can reach a port. By default, it is created and kept in
   * `$A2A_HOME/adapters`, where `attache runtime pair` finds it. The next adapter on the same `port` has the same one, so a
   * paired runtime survives a restart. `false`: none.
   */
  secret?: string | false;
  /** How many tasks to work on at a time. Default: one. */
  concurrency?: number;
  /** Your agent asks before each risky step. Other agents can then call it without a person's approval. */
  asks?: boolean;
  /** A label for the agent. Default: `custom`. */
  type?: string;
  version?: string;
  /** The limits of runs (`sandbox`) that your agent enforces: `cwd_only`, `no_network`, `no_exec`. Default: none. */
  enforces?: string[];
}

export interface Adapter {
  /** For `attache runtime pair --local-agent-endpoint`. */
  readonly url: string;
  /** Stops taking tasks, cancels those in progress, and closes. */
  close(): Promise<void>;
}

const MAX_BODY = 8 << 20;
const MAX_DEPTH = 64;
/** How many runs that have ended are remembered, to answer a runtime that asks for one again. */
const MAX_ENDED = 8;
const COMMENT_INTERVAL_MS = 10_000;
const CANCEL_TIMEOUT_MS = 900;

/** An answer that isn't the one that was asked for. */
class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint = "See docs/adapter.md.",
  ) {
    super(message);
  }
}

/** Serves your agent until closed. */
export async function serveAdapter(handler: TaskHandler<AdapterTask>, options: AdapterOptions = {}): Promise<Adapter> {
  const server = createServer();
  const host = options.host ?? "127.0.0.1";
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port ?? 0, host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const name = host === "::1" ? "[::1]" : host;
  const file = options.secret === undefined ? secretFile(`${name}_${port}`) : undefined;
  let secret = options.secret || undefined;
  try {
    if (file) secret = keepSecret(file, options.port);
  } catch (error) {
    server.close();
    throw error;
  }
  const service = new AdapterService(handler, options, port, secret);
  server.on("request", (request, response) => void service.serve(request, response));
  return {
    url: `http://${name}:${port}`,
    close: async () => {
      await close(server, service);
      // The next adapter that is given a free port isn't this one.
      if (file && !options.port) rmSync(file, { force: true });
    },
  };
}

async function close(server: Server, service: AdapterService): Promise<void> {
  await service.stop();
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

/** The same file that the built-in adapters use. */
function secretFile(name: string): string {
  return join(process.env["A2A_HOME"] || join(homedir(), ".a2a"), "adapters", name);
}

/** The secret of the adapter that was at this port before, or a new one. */
function keepSecret(file: string, chosenPort: number | undefined): string {
  const secret = (chosenPort ? readSecret(file) : undefined) ?? randomBytes(32).toString("hex");
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 });
  // In one step: whoever reads it meanwhile finds a complete secret, and nobody else can read it.
  const draft = join(dirname(file), `.${basename(file)}.${randomBytes(8).toString("hex")}`);
  try {
    writeFileSync(draft, `${secret}\n`, { mode: 0o600, flag: "wx" });
    renameSync(draft, file);
  } finally {
    rmSync(draft, { force: true });
  }
  return secret;
}

/** Nothing if the file is missing or damaged: a secret is one word that a header can carry. */
function readSecret(file: string): string | undefined {
  try {
    const text = readFileSync(file, "utf8").trim();
    return /^[\x21-\x7e]+$/.test(text) ? text : undefined;
  } catch {
    return undefined;
  }
}

class AdapterService {
  readonly #runs = new Map<string, AdapterRun>();
  #isStopping = false;

  constructor(
    readonly handler: TaskHandler<AdapterTask>,
    readonly options: AdapterOptions,
    readonly port: number,
    readonly secret: string | undefined,
  ) {}

  async stop(): Promise<void> {
    this.#isStopping = true;
    await Promise.all(this.#running().map((run) => run.cancel(CANCEL_TIMEOUT_MS)));
  }

  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    try {
      await this.#route(request, response);
    } catch (error) {
      const refusal = error instanceof Refusal ? error : new Refusal(500, "internal", "The adapter failed.");
      if (!response.headersSent)
        reply(response, refusal.status, {
          error: { code: refusal.code, message: refusal.message, hint: refusal.hint },
        });
    }
  }

  async #route(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const hosts = ["127.0.0.1", "localhost", "[::1]"].map((name) => `${name}:${this.port}`);
    if (!hosts.includes(request.headers.host ?? ""))
      throw new Refusal(421, "wrong_host", "Call this adapter by its loopback address.");
    if (request.headers.origin !== undefined)
      throw new Refusal(403, "foreign_origin", "Web pages can't call this adapter.");
    const [path] = (request.url ?? "/").split("?", 1) as [string];
    const isTrusted = this.#isTrusted(request);
    if (path === "/health")
      return this.#only(request, "GET", () => reply(response, 200, isTrusted ? this.#health() : { ok: true }));
    if (!isTrusted)
      throw new Refusal(
        401,
        "unauthenticated",
        "The secret is missing or wrong.",
        "Pair the runtime with --adapter-secret-file.",
      );
    const [first, id, verb, question] = path.split("/").slice(1);
    if (first !== "run-task") throw new Refusal(404, "no_such_path", "There is nothing at this path.");
    if (id === undefined)
      return this.#only(request, "POST", async () => this.#runTask(request, response, await readJson(request)));
    const run = this.#runs.get(id);
    if (!run) throw new Refusal(404, "not_found", "This adapter doesn't know the run.");
    switch (verb) {
      case "events":
        return this.#only(request, "GET", () => this.#stream(request, response, run));
      case "cancel":
        return this.#only(request, "POST", async () => reply(response, 200, await run.cancel(CANCEL_TIMEOUT_MS)));
      case "permission":
      case "input":
        return this.#only(request, "POST", async () => {
          const given = await readJson(request);
          if (!run.answer(verb, question ?? (given["id"] as string | undefined), given))
            throw new Refusal(404, "not_found", "The run has no such question.");
          reply(response, 200, {});
        });
    }
    throw new Refusal(404, "no_such_path", "There is nothing at this path.");
  }

  async #only(request: IncomingMessage, method: string, action: () => void | Promise<void>): Promise<void> {
    if (request.method !== method) throw new Refusal(405, "method_not_allowed", `Use ${method}.`);
    await action();
  }

  #isTrusted({ headers }: IncomingMessage): boolean {
    if (!this.secret) return true;
    const digest = (text: string) => createHash("sha256").update(text).digest();
    return timingSafeEqual(digest(headers.authorization ?? ""), digest(`Bearer ${this.secret}`));
  }

  #running(): AdapterRun[] {
    return [...this.#runs.values()].filter((run) => !run.outcome);
  }

  #health(): Record<string, unknown> {
    const { type = "custom", version, asks, enforces, concurrency = 1 } = this.options;
    const [running = null, ...others] = this.#running().map((run) => run.id);
    return {
      ok: !this.#isStopping,
      host: { type, version },
      asks,
      enforces,
      concurrency,
      running,
      also_running: others,
    };
  }

  async #runTask(request: IncomingMessage, response: ServerResponse, task: Record<string, unknown>): Promise<void> {
    if (typeof task["task_run_id"] !== "string" || task["input"] === undefined)
      throw new Refusal(400, "invalid_request", "`task_run_id` or `input` is missing.");
    const run = this.#joined(task as RunTask);
    if (request.headers.accept?.includes("text/event-stream")) return this.#stream(request, response, run);
    reply(response, 200, await run.ended);
  }

  /** The same id again is the same run, unless it was cancelled. */
  #joined(task: RunTask): AdapterRun {
    const known = this.#runs.get(task.task_run_id);
    if (known && !known.signal.aborted) return known;
    if (this.#isStopping) throw new Refusal(503, "draining", "The adapter is shutting down.");
    const running = this.#running();
    if (running.length >= (this.options.concurrency ?? 1)) {
      throw new Refusal(
        409,
        "busy",
        `This adapter is busy with ${running[0]!.id}.`,
        "Retry when that run has ended, or cancel it.",
      );
    }
    const run = new AdapterRun(task, this.handler);
    this.#runs.delete(run.id);
    this.#runs.set(run.id, run);
    const ended = [...this.#runs.values()].filter((one) => one.outcome);
    for (const old of ended.slice(0, Math.max(0, ended.length - MAX_ENDED))) this.#runs.delete(old.id);
    return run;
  }

  async #stream(request: IncomingMessage, response: ServerResponse, run: AdapterRun): Promise<void> {
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    response.flushHeaders();
    const comments = setInterval(() => response.write(":\n\n"), COMMENT_INTERVAL_MS);
    const gone = new AbortController();
    response.once("close", () => gone.abort());
    for await (const { id, event, data } of run.replay(Number(request.headers["last-event-id"] ?? 0), gone.signal)) {
      response.write(`id: ${id}\nevent: ${event}\ndata: ${data}\n\n`);
    }
    clearInterval(comments);
    response.end();
  }
}

function reply(response: ServerResponse, status: number, body: unknown): void {
  const text = JSON.stringify(body);
  response
    .writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) })
    .end(text);
}

async function readJson(request: IncomingMessage): Promise<Record<string, unknown>> {
  if (request.headers["content-type"]?.split(";", 1)[0] !== "application/json")
    throw new Refusal(415, "unsupported_media_type", "Send application/json.");
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_BODY) throw new Refusal(413, "too_large", "The body is larger than 8 MiB.");
    chunks.push(chunk);
  }
  let value: unknown;
  try {
    value = JSON.parse(Buffer.concat(chunks).toString());
  } catch {
    throw new Refusal(400, "invalid_json", "The body isn't JSON.");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Refusal(400, "invalid_json", "The body isn't a JSON object.");
  if (depth(value) > MAX_DEPTH) throw new Refusal(400, "json_too_deep", "The body is nested too deeply.");
  return value as Record<string, unknown>;
}

function depth(value: unknown): number {
  let deepest = 0;
  const stack: Array<[unknown, number]> = [[value, 0]];
  for (let next = stack.pop(); next && deepest <= MAX_DEPTH; next = stack.pop()) {
    const [one, level] = next;
    if (typeof one !== "object" || one === null) continue;
    deepest = Math.max(deepest, level + 1);
    for (const inner of Object.values(one)) stack.push([inner, level + 1]);
  }
  return deepest;
}
