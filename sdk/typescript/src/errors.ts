// Errors of this package. Each has a stable `code` to test for and a `hint` that says what to do next.
import type { Run } from "./api.js";

/** The base of all errors of this package. */
export class AttacheError extends Error {
  /** Stable: test for this. */
  readonly code: string;
  /** What to do next. */
  readonly hint: string | undefined;
  /** The member of the request that is wrong, if the hub names it. */
  readonly field: string | undefined;

  constructor(code: string, message: string, more: { hint?: string; field?: string; cause?: unknown } = {}) {
    super(message, more.cause === undefined ? undefined : { cause: more.cause });
    this.name = new.target.name;
    this.code = code;
    this.hint = more.hint;
    this.field = more.field;
  }
}

/** The hub understood the request and refused it. */
export class HubError extends AttacheError {
  /** The HTTP status; 0 for a frame of a channel. */
  readonly status: number;
  /** The hint as a stable word, if there is one. */
  readonly remedy: string | undefined;
  /** The run's current state, if the request came too late. */
  readonly taskRun: Run | undefined;
  /** When to try again, in milliseconds. */
  readonly retryAfterMs: number | undefined;
  /** The complete error response. */
  readonly body: Record<string, unknown>;

  constructor(status: number, body: Record<string, unknown>, retryAfterMs?: number) {
    const error = (body["error"] ?? {}) as Record<string, string>;
    super(error["code"] ?? "internal", error["message"] ?? `status ${status}`, {
      hint: error["hint"],
      field: error["field"],
    });
    this.status = status;
    this.remedy = error["remedy"];
    this.taskRun = (body["task_run"] ?? error["task_run"]) as Run | undefined;
    this.retryAfterMs = retryAfterMs;
    this.body = body;
  }
}

/** The hub can't be reached, or the connection broke before it answered. */
export class UnreachableError extends AttacheError {
  constructor(origin: string, reason: string, cause?: unknown) {
    const hint = "Check the address and that the hub is running: `attache doctor`.";
    super("unreachable", `Can't reach ${origin}: ${reason}.`, { hint, cause });
  }
}

/** The response doesn't come from a hub: probably another service, or a proxy in between. */
export class UnexpectedReplyError extends AttacheError {
  constructor(origin: string, reason: string) {
    super("unexpected_reply", `${origin} isn't answering like a hub: ${reason}.`, { hint: "Check the address." });
  }
}

/** The call ended without an answer: the agent failed, or someone cancelled it. */
export class CallFailedError extends AttacheError {
  readonly callId: string;

  constructor(callId: string, code: string, message: string) {
    super(code, message, { hint: `See what happened: attache watch ${runId(callId)}` });
    this.callId = callId;
  }
}

/** Throw this in an agent to end its task with a code of your choice, such as `refused` or `rejected`. */
export class TaskFailure extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.name = "TaskFailure";
    this.code = code;
  }
}

/** What was thrown, as text. Anything can be thrown, and its text can be an error itself. */
export function errorText(error: unknown): string {
  try {
    return String(error instanceof Error ? error.message : error);
  } catch {
    return "an error without a message";
  }
}

/** The code of a failed run. */
export function failureCode(error: unknown): string {
  return error instanceof TaskFailure || error instanceof AttacheError ? String(error.code) : "task_failed";
}

/** Nothing was stored: the same request can always be sent again. */
const NOTHING_STORED = new Set([
  "overloaded",
  "draining",
  "disk_full",
  "read_only",
  "storage_failed",
  "database_unreachable",
  "served_elsewhere",
  "too_many_requests",
]);

/** Whether the request had no effect and may succeed later. */
export function isTemporary(error: unknown): boolean {
  if (error instanceof HubError) return NOTHING_STORED.has(error.code) || error.code === "not_registered";
  return error instanceof UnreachableError && errno(error.cause) === "ECONNREFUSED";
}

/** Whether repeating the request may succeed, if repeating it is safe. */
export function isPassing(error: unknown): boolean {
  return (
    isTemporary(error) ||
    error instanceof UnreachableError ||
    (error instanceof HubError && error.code === "outcome_unknown")
  );
}

/** The system's error code at the end of a chain of causes. */
export function errno(error: unknown): string | undefined {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const { code, errors } = cause as { code?: unknown; errors?: unknown };
    if (typeof code === "string") return code;
    if (Array.isArray(errors)) return errno(errors[0]);
  }
  return undefined;
}

/** A call and its run have the same id under two prefixes. */
export const runId = (id: string): string => id.replace(/^a2a-/, "run_");
export const callId = (id: string): string => id.replace(/^run_/, "a2a-");
