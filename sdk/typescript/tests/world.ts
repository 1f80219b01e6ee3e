// What the tests need from the machine: a real hub that can be killed, and cables to it that can be cut.
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, connect, type AddressInfo, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { A2AClient, Worker, type Notice, type TaskHandler, type WorkerOptions, type WorkerTask } from "@attache/sdk";

export const ATTACHE = process.env["ATTACHE_BIN"]!;
const PATIENCE_MS = 30_000;

/** A TCP proxy: everything between a client and the hub goes through it, until it is cut. */
export class Cable {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  cuts = 0;
  bytes = 0;
  #cutEvery = 0;
  #cutOn: string[] = [];
  /** While unplugged, connections are refused. */
  isUnplugged = false;

  private constructor(target: () => number) {
    this.#server = createServer((near) => {
      if (this.isUnplugged) return near.destroy();
      const far = connect(target(), "127.0.0.1");
      for (const [from, to] of [
        [near, far],
        [far, near],
      ] as const) {
        this.#sockets.add(from);
        from.on("data", (bytes) => {
          if (from === far && this.#cutOn.length && bytes.includes(this.#cutOn[0]!)) {
            this.#cutOn.shift();
            return this.cut();
          }
          to.write(bytes);
          this.bytes += bytes.length;
          if (this.#cutEvery && this.bytes > this.#cutEvery) this.cut();
        });
        from.on("error", () => {});
        from.on("close", () => {
          this.#sockets.delete(from);
          to.destroy();
        });
      }
    });
  }

  static async to(target: () => number): Promise<Cable> {
    const cable = new Cable(target);
    cable.#server.listen(0, "127.0.0.1");
    await once(cable.#server, "listening");
    return cable;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Drops every connection, in the middle of whatever it carries. */
  cut(): void {
    this.cuts += 1;
    this.bytes = 0;
    for (const socket of this.#sockets) socket.readyState === "open" ? socket.resetAndDestroy() : socket.destroy();
  }

  /** Cuts itself again and again, after so many bytes. 0 stops it. */
  cutEvery(bytes: number): void {
    this.#cutEvery = bytes;
    this.bytes = 0;
  }

  /** Cuts itself when the hub sends these texts, one after the other. They are lost. */
  cutOn(...texts: string[]): void {
    this.#cutOn = texts;
  }

  get hasCutOnAll(): boolean {
    return this.#cutOn.length === 0;
  }

  /** From now on, the connections there are carry nothing, and nobody is told. New ones work. */
  freeze(): void {
    for (const socket of this.#sockets) socket.pause().removeAllListeners("data");
  }

  close(): void {
    this.#server.close();
    this.cut();
  }
}

/** Processes and folders of one test. */
export class World {
  readonly home = mkdtempSync(join(tmpdir(), "attache-sdk-"));
  readonly #processes: ChildProcess[] = [];
  readonly #workers: Array<() => void> = [];
  cable!: Cable;
  #hub: ChildProcess | undefined;
  hubPort = 0;
  /** The port the cable leads to instead of the hub's. */
  detour: number | undefined;

  /** A hub, reachable through a cable only. */
  static async start(): Promise<World> {
    const world = new World();
    world.cable = await Cable.to(() => world.detour ?? world.hubPort);
    await world.startHub();
    return world;
  }

  get url(): string {
    return `http://127.0.0.1:${this.cable.port}`;
  }

  get key(): string {
    return readFileSync(join(this.home, "data", "admin.key"), "utf8").trim();
  }

  get env(): NodeJS.ProcessEnv {
    return {
      ...process.env,
      A2A_HOME: join(this.home, "a2a"),
      AWCP_HOME: join(this.home, "awcp"),
      ATTACHE_URL: this.url,
    };
  }

  async startHub(): Promise<void> {
    const ready = join(this.home, "ready");
    rmSync(ready, { force: true });
    // A restarted hub has another port: the cable leads there.
    const args = [
      "hub",
      "--listen",
      "127.0.0.1:0",
      "--public-url",
      this.url,
      "--data",
      join(this.home, "data"),
      "--ready-file",
      ready,
    ];
    this.#hub = this.spawn(args);
    await until("the hub to be ready", () => existsSync(ready) && readFileSync(ready, "utf8").includes("}"));
    this.hubPort = Number(new URL(JSON.parse(readFileSync(ready, "utf8")).url).port);
  }

  /** By default as if its machine lost power: no goodbye, nothing flushed. */
  async restartHub(signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    const hub = this.#hub!;
    const gone = once(hub, "exit");
    hub.kill(signal);
    await gone;
    await this.startHub();
  }

  spawn(args: string[], env: NodeJS.ProcessEnv = {}): ChildProcess {
    const child = spawn(ATTACHE, args, { env: { ...this.env, ...env }, stdio: ["ignore", "ignore", "pipe"] });
    let errors = "";
    child.stderr!.on("data", (text) => (errors = (errors + text).slice(-4_000)));
    child.once(
      "exit",
      (code) =>
        code && process.env["ATTACHE_SDK_VERBOSE"] && console.error(`${args[0]} exited with ${code}: ${errors}`),
    );
    this.#processes.push(child);
    return child;
  }

  /** Runs a command of `attache` to its end, and returns its output. */
  async attache(args: string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
    const child = spawn(ATTACHE, args, {
      env: { ...this.env, ATTACHE_KEY: this.key, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let [output, errors] = ["", ""];
    child.stdout.on("data", (text) => (output += text));
    child.stderr.on("data", (text) => (errors += text));
    const [code] = await once(child, "close");
    if (code) throw new Error(`attache ${args.join(" ")} exited with ${code}: ${errors}`);
    return output;
  }

  client(more: Partial<ConstructorParameters<typeof A2AClient>[0]> = {}): A2AClient {
    return new A2AClient({ url: this.url, key: this.key, ...more });
  }

  /** Registers an agent and lets this function work for it. */
  async worker(
    name: string,
    handler: TaskHandler<WorkerTask>,
    more: Partial<WorkerOptions> = {},
    notices: Notice[] = [],
  ): Promise<{ worker: Worker; notices: Notice[]; ended: Promise<void> }> {
    const { api_key: key } = await this.client().agents.register(name);
    const worker = new Worker({ url: this.url, key, onNotice: (notice) => notices.push(notice), ...more }, handler);
    const stop = new AbortController();
    this.#workers.push(() => stop.abort());
    const ended = worker.run({ signal: stop.signal });
    ended.catch(() => {});
    await until("the worker to connect", () => notices.some((notice) => notice.type === "connected"));
    return { worker, notices, ended };
  }

  async stop(): Promise<void> {
    for (const stop of this.#workers) stop();
    const running = this.#processes.filter((child) => child.exitCode === null && child.signalCode === null);
    await Promise.all(running.map((child) => (child.kill("SIGKILL"), once(child, "exit"))));
    this.cable?.close();
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** Waits until something is there. */
export async function until<T>(
  what: string,
  check: () => T | Promise<T>,
): Promise<Exclude<T, undefined | null | false | 0 | "">> {
  const giveUpAt = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await check();
    if (found) return found as Exclude<T, undefined | null | false | 0 | "">;
    if (Date.now() > giveUpAt) throw new Error(`waited in vain for ${what}`);
    await sleep(10);
  }
}

export async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}
