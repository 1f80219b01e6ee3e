// Calls agents through a hub, watches them, and gives access to everything else that the hub keeps.
import type {
  CallAnswer,
  CallRequest,
  CallResult,
  CallStarted,
  CallStats,
  CallStatus,
  GiveInputResponse,
  Operations,
} from "./api.js";
import { Artifacts } from "./artifacts.js";
import { CallFailedError, UnexpectedReplyError, callId, runId } from "./errors.js";
import { follow } from "./follow.js";
import { HubConnection, type ClientOptions, type OperationArguments, type RequestOptions } from "./http.js";
import { Agents, Approvals, Conversations, Runs } from "./resources.js";

/** Everything a call can have besides the agent and the task. */
export interface CallOptions extends Omit<CallRequest, "task" | "agent_type">, RequestOptions {
  /** The same key again is the same call. By default, each call has a new one. */
  idempotencyKey?: string;
}

/** The answer to a call. */
export interface CallReply extends Omit<CallAnswer, "summary"> {
  call_id: string;
  summary: string;
  stats: CallStats;
}

/** An update of a call. `cursor` is where to continue: `watch(id, {after: cursor})`. */
export type CallEvent = { cursor: number } & (
  | { type: "progress"; data: { goal: string | null; progress: number | null } }
  /** `kind` is `chunk` (a piece of the answer), `thought`, `log`, `tool_call`, `permission.requested`, `input_required`, … */
  | { type: "message"; data: { kind: string; text?: string; details?: Record<string, unknown> } }
  | { type: "completed"; data: { result: CallAnswer; stats: CallStats } }
  | { type: "failed"; data: { error: unknown; code: string } }
);

export interface Answer extends RequestOptions {
  /** The question it answers; by default, the oldest open one. Refused once that question is closed. */
  input_request_id?: string;
  /** The same key again is the same answer. */
  idempotencyKey?: string;
}

/** How long one request waits at the hub for a result. */
const WAIT_MS = 20_000;

/** Calls agents through one hub with one key. */
export class A2AClient {
  readonly hub: HubConnection;
  readonly agents: Agents;
  readonly runs: Runs;
  readonly conversations: Conversations;
  readonly approvals: Approvals;
  readonly artifacts: Artifacts;

  constructor(options: ClientOptions) {
    this.hub = new HubConnection(options);
    this.agents = new Agents(this.hub);
    this.runs = new Runs(this.hub);
    this.conversations = new Conversations(this.hub);
    this.approvals = new Approvals(this.hub);
    this.artifacts = new Artifacts(this.hub);
  }

  /** Any endpoint of the hub, typed: `request("GET /api/v1/usage", {query: {from: "2026-11-01"}})`. */
  request<K extends keyof Operations>(
    operation: K,
    ...rest: OperationArguments<K>
  ): Promise<Operations[K]["response"]> {
    return this.hub.request(operation, ...rest);
  }

  /**
   * Gives an agent a task. The agent is a name, an id, a skill or a capability; null is the hub's default agent. With
   * `wait`, returns the answer, however long it takes and over as many connections as it takes. If a response is lost,
   * the request is sent again and still makes one call. Aborting the signal doesn't cancel the call.
   */
  call(agent: string | null, task: string, options: CallOptions & { wait: true }): Promise<CallReply>;
  call(agent: string | null, task: string, options?: CallOptions & { wait?: false }): Promise<CallStarted>;
  async call(
    agent: string | null,
    task: string,
    options: CallOptions & { wait?: boolean } = {},
  ): Promise<CallReply | CallStarted> {
    const { wait, signal, idempotencyKey, ...more } = options;
    const body = { ...more, task, agent_type: agent };
    const started = await this.hub.request("POST /api/a2a/call", { body, idempotencyKey, signal });
    return wait ? this.waitFor(started.call_id, { signal }) : started;
  }

  /** The result of a call, or its state if it hasn't ended. With `wait`, waits until it has. */
  async getResult(
    call: string,
    { wait = false, signal }: { wait?: boolean } & RequestOptions = {},
  ): Promise<CallResult> {
    for (;;) {
      const given = { path: { call: callId(call) }, query: { wait_ms: wait ? WAIT_MS : undefined }, signal };
      const result = await this.hub.request("GET /api/a2a/result/{call}", given);
      if (!wait || !(result.status === "started" || result.status === "running")) return result;
    }
  }

  /** Waits for the answer. A call that fails or is cancelled is a `CallFailedError`. */
  async waitFor(call: string, options: RequestOptions = {}): Promise<CallReply> {
    const { status, result, stats, error, code } = await this.getResult(call, { ...options, wait: true });
    if (status !== "completed")
      throw new CallFailedError(callId(call), code ?? status, asText(error ?? `The call was ${status}.`));
    if (!result) throw new UnexpectedReplyError(this.hub.url.origin, "a completed call has no result");
    return { ...result, summary: asText(result.summary), call_id: callId(call), stats };
  }

  /**
   * Every update of a call from its start, however late you begin, up to `completed` or `failed`. A broken connection is
   * resumed after the last update: nothing is lost, and nothing comes twice.
   */
  async *watch(
    call: string,
    { after = 0, signal }: { after?: number } & RequestOptions = {},
  ): AsyncGenerator<CallEvent> {
    const stream = follow(this.hub, {
      path: `/api/a2a/watch/${encodeURIComponent(callId(call))}`,
      after,
      signal,
      isLast: (message) => message.event === "completed" || message.event === "failed",
      hasEnded: async () => !["started", "running"].includes((await this.getResult(call, { signal })).status),
    });
    for await (const { data, cursor } of stream) yield { ...(JSON.parse(data) as CallEvent), cursor };
  }

  /** Cancels a call and the calls that were made on its behalf. A call that has ended stays as it is. */
  async cancel(call: string, options: { reason?: string } & RequestOptions = {}): Promise<CallStatus> {
    const { status } = await this.runs.cancel(call, options);
    return status === "pending" ? "started" : status;
  }

  /** Answers an agent's question, or sends it something it didn't ask for: a text, or parts. */
  answer(
    call: string,
    answer: string | unknown[],
    { signal, idempotencyKey, input_request_id }: Answer = {},
  ): Promise<GiveInputResponse> {
    const key = idempotencyKey ?? `sdk-${crypto.randomUUID()}`;
    const content = typeof answer === "string" ? { text: answer } : { parts: answer };
    const body = { ...content, input_request_id, idempotency_key: key };
    return this.hub.request("POST /api/v1/task-runs/{run}/input", {
      path: { run: runId(call) },
      body,
      isRepeatable: true,
      signal,
    });
  }
}

/** Agents may answer with any JSON. */
const asText = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));
