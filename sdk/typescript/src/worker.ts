// An agent on a channel: takes tasks from a hub, reports, asks, and finishes them, across broken connections.
import { Channel, type Frame, type Payload } from "./channel.js";
import { A2AClient, type CallOptions, type CallReply } from "./client.js";
import { HubError, errorText, failureCode, type AttacheError } from "./errors.js";
import type { ClientOptions } from "./http.js";
import {
  TaskCancelled,
  checkedOutput,
  givenInput,
  inputText,
  pieces,
  unlessAborted,
  type Approval,
  type Decision,
  type GivenInput,
  type Task,
  type TaskHandler,
  type Usage,
} from "./task.js";
import { sleep } from "./timing.js";

export interface WorkerOptions extends ClientOptions {
  /** How many tasks to work on at a time. Default: one. */
  concurrency?: number;
  /** Shown to people, and used to find an agent for a call. */
  capabilities?: string[];
  deviceInfo?: Record<string, unknown>;
  /** The limits of runs (`sandbox`) that your agent enforces: `cwd_only`, `no_network`, `no_exec`. Default: none. */
  enforces?: string[];
  /** How long the hub may be silent before it is asked for a sign of life. Default: ten seconds. */
  heartbeatMs?: number;
  /** What happens to the connection and to tasks. Default: connects, disconnects and failures go to `console.error`. */
  onNotice?(notice: Notice): void;
}

export type Notice =
  | { type: "connected"; opening: "registered" | "resumed"; agentId: string }
  | { type: "broken"; error: AttacheError }
  | { type: "started" | "ended" | "cancelled"; taskRunId: string }
  | { type: "failed"; taskRunId: string; error: unknown }
  | { type: "refused"; taskRunId: string; error: unknown };

/** A task of a channel: its caller may offer tools. */
export interface WorkerTask extends Task {
  /** The tools of the caller that this task may use. */
  readonly tools: Array<{ name: string; description?: string; input_schema?: unknown }>;
  /** Runs one of the caller's tools. A refusal, or a failure of the tool, is an error. */
  callTool(name: string, args?: unknown): Promise<unknown>;
  /** Calls another agent on behalf of this task, and waits for its answer. */
  call(agent: string, task: string, options?: CallOptions): Promise<CallReply>;
  /** What the caller sent without being asked, oldest first. Take what you have read out of it. */
  readonly unsolicited: GivenInput[];
  /** The hub, with this agent's key. */
  readonly client: A2AClient;
}

const DRAIN_TIMEOUT_MS = 2_000;
const MAX_REASON = 1_000;

export class Worker {
  readonly client: A2AClient;
  readonly #options: WorkerOptions;
  readonly #handler: TaskHandler<WorkerTask>;
  readonly #channel: Channel;
  readonly #claims = new Map<string, Claim>();
  #isStopping = false;
  /** What the hub may still send over this connection. */
  #credits = 0;
  #active = 0;
  readonly #waiting: Array<() => void> = [];
  readonly #idle: Array<() => void> = [];
  readonly #closing = new AbortController();

  constructor(options: WorkerOptions, handler: TaskHandler<WorkerTask>) {
    this.client = new A2AClient(options);
    this.#options = options;
    this.#handler = handler;
    this.#channel = new Channel({
      hub: this.client.hub,
      heartbeatMs: options.heartbeatMs,
      registration: () => ({
        peer_role: "worker",
        capabilities: ["streaming", "resume", "permissions", "artifacts", ...(options.capabilities ?? [])],
        device_info: options.deviceInfo,
        running: [...this.#claims.keys()],
      }),
      onConnected: (opening, agentId) => {
        this.#credits = 0;
        this.#grant();
        this.#notice({ type: "connected", opening, agentId: agentId ?? "" });
      },
      onBroken: (error) => this.#notice({ type: "broken", error }),
      onFrame: (frame) => this.#receive(frame),
    });
  }

  /** Works until `stop` is called or the signal is aborted. Rejects if the hub refuses the key, or another worker takes over. */
  async run({ signal }: { signal?: AbortSignal } = {}): Promise<void> {
    const ended = signal ? AbortSignal.any([signal, this.#closing.signal]) : this.#closing.signal;
    try {
      await this.#channel.run(ended);
    } finally {
      for (const claim of this.#claims.values()) claim.abort(new Error("the worker stopped"));
    }
  }

  /** Takes no more tasks, finishes those it has, and disconnects. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    // Once this is answered, no task is on its way any more.
    if (this.#channel.isConnected)
      await Promise.race([this.#channel.request({ action: "drain" }), sleep(DRAIN_TIMEOUT_MS)]);
    if (this.#claims.size) await new Promise<void>((resolve) => this.#idle.push(resolve));
    this.#closing.abort();
  }

  get #concurrency(): number {
    return this.#options.concurrency ?? 1;
  }

  /** Lets the hub send as many tasks as there is room for. */
  #grant(): void {
    const credits = this.#concurrency - this.#claims.size - this.#credits;
    if (credits <= 0 || this.#isStopping || !this.#channel.isConnected) return;
    this.#credits += credits;
    this.#channel.notify({ action: "ready", credits, enforces: this.#options.enforces });
  }

  #receive({ payload }: Frame): void {
    const claim = this.#claims.get(payload["task_run_id"]);
    switch (payload["action"]) {
      case "execute":
        if (claim?.epoch === payload["epoch"]) return;
        claim?.abort(new TaskCancelled());
        this.#credits = Math.max(0, this.#credits - 1);
        void this.#execute(payload);
        return;
      case "cancel":
        claim?.abort(new TaskCancelled());
        return;
      case "input":
        claim?.unsolicited.push(givenInput(payload["parts"]));
        return;
    }
  }

  async #execute(payload: Payload): Promise<void> {
    const claim = new Claim(this.#channel, this.client, payload, (error) =>
      this.#notice({ type: "refused", taskRunId: payload["task_run_id"], error }),
    );
    this.#claims.set(claim.id, claim);
    // After a reconnect, the hub may send more than there is room for.
    if (this.#active >= this.#concurrency) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.#active += 1;
    this.#notice({ type: "started", taskRunId: claim.id });
    try {
      await this.#finish(claim, await this.#work(claim));
    } finally {
      this.#channel.discard(claim.id, claim.epoch);
      if (this.#claims.get(claim.id) === claim) this.#claims.delete(claim.id);
      this.#active -= 1;
      this.#waiting.shift()?.();
      this.#grant();
      if (!this.#claims.size) for (const resolve of this.#idle.splice(0)) resolve();
    }
  }

  /** What to tell the hub in the end. */
  async #work(claim: Claim): Promise<Payload> {
    try {
      // It may have been cancelled while it waited for its turn.
      claim.signal.throwIfAborted();
      const returned = await unlessAborted(
        Promise.resolve().then(() => this.#handler(claim)),
        claim.signal,
      );
      const { usage, ...rest } = checkedOutput(returned);
      if (typeof returned === "string") return { action: "done", result_summary: returned, artifact_refs: [] };
      return { action: "done", output: { artifact_refs: [], ...rest }, usage_stats: usage };
    } catch (error) {
      if (!claim.signal.aborted) this.#notice({ type: "failed", taskRunId: claim.id, error });
      return { action: "fail", error: errorText(error), code: failureCode(error) };
    }
  }

  async #finish(claim: Claim, end: Payload): Promise<void> {
    if (claim.signal.aborted) return this.#notice({ type: "cancelled", taskRunId: claim.id });
    claim.isFinishing = true;
    const send = (payload: Payload) =>
      unlessAborted(this.#channel.request({ ...payload, ...claim.about }), claim.signal);
    try {
      await send(end).catch((error: unknown) => {
        if (claim.signal.aborted || isOver(error)) throw error;
        this.#notice({ type: "failed", taskRunId: claim.id, error });
        // Without an end, the run would stay open until somebody cancels it.
        return send(unreported(end, error));
      });
      this.#notice({ type: "ended", taskRunId: claim.id });
    } catch (error) {
      // Cancelled in the meantime, or no longer ours.
      this.#notice({ type: "refused", taskRunId: claim.id, error });
    }
  }

  #notice(notice: Notice): void {
    try {
      if (this.#options.onNotice) this.#options.onNotice(notice);
      else this.#print(notice);
    } catch (error) {
      // The run that it is about must still end.
      console.error("attache: onNotice failed:", error);
    }
  }

  #print(notice: Notice): void {
    if (notice.type === "connected")
      console.error(`attache: connected to ${this.client.hub.url.origin} as ${notice.agentId}, waiting for tasks.`);
    if (notice.type === "broken") console.error(`attache: ${notice.error.message} Retrying.`);
    if (notice.type === "failed") console.error(`attache: ${notice.taskRunId} failed:`, notice.error);
    if (notice.type === "refused")
      console.error(`attache: the hub refused a report of ${notice.taskRunId}: ${String(notice.error)}`);
  }
}

/** The run has ended, or is another worker's. */
function isOver(error: unknown): boolean {
  return error instanceof HubError && ["stale_epoch", "run_ended", "not_running", "not_found"].includes(error.code);
}

/** The end of a run whose own end can't be reported as it is. */
function unreported(end: Payload, error: unknown): Payload {
  const text = end["action"] === "fail" ? end["error"] : `The answer wasn't accepted: ${errorText(error)}`;
  return { action: "fail", error: String(text).slice(0, MAX_REASON), code: "task_failed" };
}

/** A run that this worker holds. */
class Claim implements WorkerTask {
  readonly id: string;
  readonly epoch: number;
  readonly unsolicited: GivenInput[] = [];
  /** Its end was sent. Reports that are sent again after that come too late, and needn't arrive. */
  isFinishing = false;
  readonly #abort = new AbortController();
  /** Reports are numbered, so that one that is sent again counts once. */
  #reports = 0;

  constructor(
    readonly channel: Channel,
    readonly client: A2AClient,
    readonly details: Payload,
    readonly onRefused: (error: unknown) => void,
  ) {
    this.id = details["task_run_id"];
    this.epoch = details["epoch"];
  }

  get about(): Payload {
    return { task_run_id: this.id, epoch: this.epoch };
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  get text(): string {
    return this.details["query"] ?? inputText(this.input);
  }

  get input(): unknown {
    return this.details["input"];
  }

  get conversationId(): string {
    return this.details["conversation_id"];
  }

  get workspaceId(): string {
    return this.details["workspace_id"];
  }

  get instructions(): string | null {
    return this.details["instructions"] ?? null;
  }

  get deadline(): Date | null {
    return this.details["deadline"] ? new Date(this.details["deadline"]) : null;
  }

  get budget(): Task["budget"] {
    return this.details["budget"] ?? null;
  }

  get sandbox(): Task["sandbox"] {
    return this.details["sandbox"] ?? null;
  }

  get tools(): WorkerTask["tools"] {
    return this.details["tools"] ?? [];
  }

  abort(reason: unknown): void {
    this.#abort.abort(reason);
    this.channel.discard(this.id, this.epoch);
  }

  async chunk(text: string): Promise<void> {
    await Promise.all(pieces(text).map((piece) => this.#report("chunk", { action: "chunk", text: piece })));
  }

  async think(text: string): Promise<void> {
    await Promise.all(
      pieces(text).map((piece) => this.#report("notification", { action: "think", thought_text: piece })),
    );
  }

  async log(message: string, level = "info"): Promise<void> {
    await Promise.all(
      pieces(message).map((piece) => this.#report("notification", { action: "log", level, message: piece })),
    );
  }

  progress(message: string, { percent, usage }: { percent?: number; usage?: Usage } = {}): Promise<void> {
    return this.#report("notification", { action: "progress", message, percent, usage_stats: usage });
  }

  async requireApproval(approval: Approval): Promise<Decision> {
    const { approved, scope, comment } = await this.#ask({ action: "require_approval", ...approval });
    return { approved: approved === true, scope, comment };
  }

  async ask(prompt: string, parts?: unknown[]): Promise<GivenInput> {
    return givenInput((await this.#ask({ action: "require_input", prompt, parts }))["parts"]);
  }

  async callTool(name: string, args: unknown = {}): Promise<unknown> {
    return (await this.#ask({ action: "call_tool", tool_name: name, arguments: args }))["result"];
  }

  async call(agent: string, task: string, options: CallOptions = {}): Promise<CallReply> {
    return this.client.call(agent, task, { signal: this.signal, parent_task_run_id: this.id, ...options, wait: true });
  }

  #ask(payload: Payload): Promise<Payload> {
    return unlessAborted(this.channel.request({ ...payload, ...this.about }), this.signal);
  }

  /** Resolves in any case: a report that the hub refuses is no reason to stop, unless the run is no longer ours. */
  async #report(type: "chunk" | "notification", payload: Payload): Promise<void> {
    if (this.signal.aborted) return;
    try {
      await this.channel.report(type, { ...payload, ...this.about, report: ++this.#reports });
    } catch (error) {
      if (!isOver(error)) this.onRefused(error);
      else if (!this.isFinishing) this.abort(new TaskCancelled());
    }
  }
}
