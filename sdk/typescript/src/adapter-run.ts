// One task of an adapter: its events, kept so that a runtime can replay them, the answers to its questions, and its end.
import type { Budget, Sandbox } from "./api.js";
import { TaskFailure, errorText, failureCode } from "./errors.js";
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
  type TaskOutput,
  type Usage,
} from "./task.js";
import { deferred, sleep } from "./timing.js";

/** The body of `POST /run-task`. */
export interface RunTask extends Record<string, unknown> {
  task_run_id: string;
  input: unknown;
}

export type Outcome =
  { success: true; output: Record<string, unknown> } | { success: false; error: { code: string; message: string } };

export interface AdapterTask extends Task {
  /** The working folder. `artifact_refs` can name files below it: `{path: "out/report.pdf"}`. */
  readonly cwd: string | null;
  /** Attachments that the runtime has downloaded. */
  readonly files: Array<{ url: string; path: string }>;
}

interface RunEvent {
  id: number;
  event: string;
  data: string;
}

interface Question {
  kind: "permission" | "input";
  answer: ReturnType<typeof deferred<Record<string, unknown>>>;
  isAnswered: boolean;
}

/** Chunks are sent together, at most every 50 ms or 4 KiB. */
const CHUNK_INTERVAL_MS = 50;
const MAX_CHUNK = 4_096;
const MAX_EVENT_BYTES = 16 << 20;

export class AdapterRun implements AdapterTask {
  readonly id: string;
  readonly ended: Promise<Outcome>;
  outcome: Outcome | undefined;
  readonly #end = deferred<Outcome>();
  readonly #abort = new AbortController();
  readonly #questions = new Map<string, Question>();
  #events: RunEvent[] = [];
  #bytes = 0;
  #lastId = 0;
  #moved = deferred<void>();
  #text = "";
  #flushTimer: NodeJS.Timeout | undefined;
  #deadline: { at: number; timer?: NodeJS.Timeout } | undefined;
  readonly #worked: Promise<void>;

  constructor(
    readonly details: RunTask,
    handler: TaskHandler<AdapterTask>,
  ) {
    this.id = details.task_run_id;
    this.ended = this.#end.promise;
    if (this.deadline) {
      this.#deadline = { at: this.deadline.getTime() };
      this.#startClock();
    }
    this.#worked = this.#work(handler);
  }

  // === What the agent sees ===

  get text(): string {
    return inputText(this.input);
  }

  get input(): unknown {
    return this.details.input;
  }

  get conversationId(): string {
    return String(this.details["conversation_id"] ?? "");
  }

  get workspaceId(): string {
    return String(this.details["workspace_id"] ?? "");
  }

  get instructions(): string | null {
    return (this.details["instructions"] as string | undefined) ?? null;
  }

  get deadline(): Date | null {
    return this.details["deadline"] ? new Date(this.details["deadline"] as string) : null;
  }

  get budget(): Budget | null {
    return (this.details["budget"] as Budget | undefined) ?? null;
  }

  get sandbox(): Sandbox | null {
    return (this.details["sandbox"] as Sandbox | undefined) ?? null;
  }

  get cwd(): string | null {
    return (this.details["cwd"] as string | undefined) ?? null;
  }

  get files(): AdapterTask["files"] {
    return (this.details["files"] as AdapterTask["files"] | undefined) ?? [];
  }

  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  async chunk(text: string): Promise<void> {
    this.#text += text;
    if (this.#text.length >= MAX_CHUNK) this.#flush();
    else this.#flushTimer ??= setTimeout(() => this.#flush(), CHUNK_INTERVAL_MS);
  }

  async think(text: string): Promise<void> {
    for (const piece of pieces(text)) this.#tell("thought", { text: piece });
  }

  async log(message: string, level = "info"): Promise<void> {
    for (const piece of pieces(message)) this.#tell("log", { level, message: piece });
  }

  async progress(message: string, more: { percent?: number; usage?: Usage } = {}): Promise<void> {
    this.#tell("progress", { message, ...more });
  }

  async requireApproval(approval: Approval): Promise<Decision> {
    const { approved, scope, comment } = await this.#question("permission", "permission", approval);
    return { approved: approved === true, scope: scope as string | undefined, comment: comment as string | undefined };
  }

  async ask(prompt: string, parts?: unknown[]): Promise<GivenInput> {
    return givenInput((await this.#question("input", "input_required", { prompt, parts }))["parts"]);
  }

  // === What the runtime sees ===

  /** The events after one, and those to come, up to `result`. */
  async *replay(after: number, gone: AbortSignal): AsyncGenerator<RunEvent> {
    // An id that this run hasn't reached is from before a restart.
    let seen = Number.isSafeInteger(after) && after <= this.#lastId ? after : 0;
    while (!gone.aborted) {
      const moved = this.#moved.promise;
      for (const event of this.#events.filter((one) => one.id > seen)) {
        if (event.id > seen + 1)
          yield {
            id: event.id - 1,
            event: "log",
            data: JSON.stringify({ level: "warn", message: "Earlier events are no longer available." }),
          };
        yield event;
        seen = event.id;
        if (event.event === "result") return;
      }
      await Promise.race([
        moved,
        new Promise<void>((resolve) => gone.addEventListener("abort", () => resolve(), { once: true })),
      ]);
    }
  }

  /** The first answer counts. False if there is no such question. */
  answer(kind: Question["kind"], id: string | undefined, given: Record<string, unknown>): boolean {
    const open = [...this.#questions.entries()].find(
      ([, question]) => question.kind === kind && !question.isAnswered,
    )?.[0];
    const question = this.#questions.get(id ?? open ?? "");
    if (question?.kind !== kind) return false;
    if (!question.isAnswered) {
      question.isAnswered = true;
      this.#startClock();
      question.answer.resolve(given);
    }
    return true;
  }

  /** Returns when the agent has stopped, or after this time. A run that has ended keeps its outcome. */
  async cancel(timeoutMs: number): Promise<Outcome> {
    if (!this.outcome) {
      this.#abort.abort(new TaskCancelled());
      await Promise.race([this.#worked, sleep(timeoutMs)]);
    }
    return this.ended;
  }

  async #work(handler: TaskHandler<AdapterTask>): Promise<void> {
    const work = Promise.resolve().then(() => handler(this));
    // Without an outcome, the run would occupy this adapter for good, so whatever goes wrong becomes one.
    this.#finish(
      await unlessAborted(work, this.signal)
        .then(succeeded)
        .catch((error) => this.#failed(error)),
    );
    // An agent that was cancelled may need a moment to stop.
    await work.catch(() => {});
  }

  #failed(error: unknown): Outcome {
    const message = errorText(error);
    if (error instanceof TaskCancelled) return { success: false, error: { code: "cancelled", message } };
    if (!(error instanceof TaskFailure)) console.error(`attache: ${this.id} failed:`, error);
    return { success: false, error: { code: failureCode(error), message } };
  }

  #finish(outcome: Outcome): void {
    this.#flush();
    clearTimeout(this.#deadline?.timer);
    this.outcome = outcome;
    this.#tell("result", outcome);
    this.#end.resolve(outcome);
  }

  #question(kind: Question["kind"], event: string, data: object): Promise<Record<string, unknown>> {
    const id = `q${this.#questions.size + 1}`;
    const question: Question = { kind, answer: deferred(), isAnswered: false };
    this.#questions.set(id, question);
    this.#stopClock();
    this.#tell(event, { id, ...data });
    return unlessAborted(question.answer.promise, this.signal);
  }

  /** Time during which a question is open doesn't count. */
  #stopClock(): void {
    if (!this.#deadline?.timer) return;
    clearTimeout(this.#deadline.timer);
    this.#deadline = { at: this.#deadline.at - Date.now() };
  }

  #startClock(): void {
    const deadline = this.#deadline;
    if (!deadline || deadline.timer || [...this.#questions.values()].some((question) => !question.isAnswered)) return;
    const isFirst = this.#questions.size === 0;
    const at = isFirst ? deadline.at : Date.now() + deadline.at;
    const late = () => this.#abort.abort(new TaskFailure("timed_out", "The deadline has passed."));
    // A timer can't be longer than that.
    this.#deadline = { at, timer: setTimeout(late, Math.min(at - Date.now(), 2 ** 31 - 1)) };
  }

  #flush(): void {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = undefined;
    const text = this.#text;
    this.#text = "";
    for (const piece of pieces(text)) this.#push("chunk", { text: piece });
  }

  #tell(event: string, data: object): void {
    this.#flush();
    this.#push(event, data);
  }

  #push(event: string, data: object): void {
    if (this.#events.at(-1)?.event === "result") return;
    const text = JSON.stringify(data);
    this.#events.push({ id: ++this.#lastId, event, data: text });
    this.#bytes += text.length;
    while (this.#bytes > MAX_EVENT_BYTES) {
      const oldest = this.#events.findIndex((one) => !["permission", "input_required", "result"].includes(one.event));
      if (oldest < 0) break;
      this.#bytes -= this.#events.splice(oldest, 1)[0]!.data.length;
    }
    const moved = this.#moved;
    this.#moved = deferred();
    moved.resolve();
  }
}

function succeeded(returned: TaskOutput): Outcome {
  const { text, ...rest } = checkedOutput(returned);
  const outcome: Outcome = { success: true, output: { text, artifact_refs: [], ...rest } };
  // What can't be sent can't be the outcome.
  JSON.stringify(outcome);
  return outcome;
}
