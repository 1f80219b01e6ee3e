// A task as the agent that works on it sees it. The same function can serve a channel (Worker) and an adapter.
import type { Budget, Sandbox } from "./api.js";

export interface Approval {
  /** The tool, process or action. */
  tool: string;
  /** The exact input: people decide on this and nothing else. */
  input: unknown;
  cwd?: string;
  paths?: string[];
  reason?: string;
  /** A word such as `low`, `medium`, `high`. */
  risk?: string;
  /** The change as a unified diff. */
  diff?: string;
  /** What isn't disclosed: `input`, `paths`. */
  undisclosed?: string[];
}

export interface Decision {
  /** False: the step must not be taken. */
  approved: boolean;
  scope?: string | null;
  comment?: string | null;
}

export interface GivenInput {
  /** The texts of all parts. */
  text: string;
  parts: Array<Record<string, unknown>>;
}

export interface Usage {
  tokens?: number;
  cost_usd?: number;
}

/** What the agent hands back: a text, or a text with more. Other members are kept as they are. */
export type TaskOutput = string | { text: string; artifact_refs?: unknown[]; usage?: Usage; [member: string]: unknown };

export interface Task {
  /** The run, `run_…`. */
  readonly id: string;
  /** What to do. */
  readonly text: string;
  /** The complete input, as the caller sent it. */
  readonly input: unknown;
  readonly conversationId: string;
  readonly workspaceId: string;
  readonly instructions: string | null;
  readonly deadline: Date | null;
  readonly budget: Budget | null;
  readonly sandbox: Sandbox | null;
  /** Everything the hub or the runtime sent about the task. */
  readonly details: Record<string, unknown>;
  /** Aborted when the run is cancelled, or is no longer ours. */
  readonly signal: AbortSignal;

  /** A piece of the answer, shown while you work. The promise resolves once it has arrived; you needn't wait for it. */
  chunk(text: string): Promise<void>;
  /** A piece of your reasoning. */
  think(text: string): Promise<void>;
  log(message: string, level?: string): Promise<void>;
  /** `usage` is the total so far. */
  progress(message: string, more?: { percent?: number; usage?: Usage }): Promise<void>;
  /** Waits until a person has decided, for hours if necessary and across restarts of the hub. */
  requireApproval(approval: Approval): Promise<Decision>;
  /** Asks the caller, and waits for the answer. */
  ask(prompt: string, parts?: unknown[]): Promise<GivenInput>;
}

/** Your agent. What it throws becomes the failure of the run; a `TaskFailure` also sets the code. */
export type TaskHandler<T extends Task = Task> = (task: T) => TaskOutput | Promise<TaskOutput>;

/** What an agent returned, as an object. In JavaScript, that can be anything. */
export function checkedOutput(returned: unknown): Exclude<TaskOutput, string> {
  if (typeof returned === "string") return { text: returned };
  if (typeof (returned as { text?: unknown } | null | undefined)?.text === "string")
    return returned as Exclude<TaskOutput, string>;
  const kind = returned === null ? "null" : Array.isArray(returned) ? "an array" : typeof returned;
  const what = kind === "object" ? "an object without a text" : kind;
  throw new TypeError(`The agent's function returned ${what}. Return a string or {text, …}.`);
}

export function givenInput(parts: unknown): GivenInput {
  const list = (Array.isArray(parts) ? parts : []) as Array<Record<string, unknown>>;
  const texts = list.map((part) => part["text"]).filter((text) => typeof text === "string");
  return { text: texts.join("\n"), parts: list };
}

/** The `text` of an input, or all of it as JSON. */
export function inputText(input: unknown): string {
  const text = (input as { text?: unknown } | null)?.text;
  return typeof text === "string" ? text : JSON.stringify(input ?? null);
}

/** The reason of an aborted task. */
export class TaskCancelled extends Error {
  constructor() {
    super("the run was cancelled");
    this.name = "TaskCancelled";
  }
}

/** Rejects as soon as the signal is aborted. What becomes of the promise after that is ignored. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  promise.catch(() => {});
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) return stop();
    signal.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

const MAX_TEXT = 16_000;

/** Pieces small enough for one event, never split within a character. */
export function pieces(text: string): string[] {
  const parts: string[] = [];
  for (let start = 0; start < text.length;) {
    let end = Math.min(text.length, start + MAX_TEXT);
    const last = text.charCodeAt(end - 1);
    if (end < text.length && last >= 0xd800 && last < 0xdc00) end -= 1;
    parts.push(text.slice(start, end));
    start = end;
  }
  return parts;
}
