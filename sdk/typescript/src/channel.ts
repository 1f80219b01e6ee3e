// A durable channel to a hub (docs/channels.md): one WebSocket at a time, reopened and resumed whenever it breaks.
// Whatever is sent here arrives once, and whatever the hub sends is delivered here once.
import type { FrameType } from "./api.js";
import { AttacheError, HubError, UnexpectedReplyError, UnreachableError, isPassing } from "./errors.js";
import type { HubConnection } from "./http.js";
import { openSocket, type Socket } from "./socket.js";
import { Backoff, deferred, sleep } from "./timing.js";

/** The members of a payload depend on its action. */
export type Payload = Record<string, any>;

export interface Frame {
  header: { msg_id: string; parent_id?: string | null; type: FrameType; seq?: number | null };
  metadata?: { trace_id?: string | null; ttl?: number | null } | null;
  payload: Payload;
}

export interface ChannelOptions {
  hub: Pick<HubConnection, "url" | "key">;
  /** The payload of `register`, without its action. Asked again whenever the channel registers. */
  registration(): Payload;
  /** The hub knows this channel. Credits start at zero. `agentId` is null for an engine. */
  onConnected?(opening: "registered" | "resumed", agentId: string | null): void;
  /** The connection broke, or couldn't be opened. The channel keeps trying. */
  onBroken?(error: AttacheError): void;
  /** A request or a notification of the hub, once each. It is acknowledged afterwards. */
  onFrame(frame: Frame): void;
  /** After so long without a frame, the hub is asked for one. Twice as long, and the connection counts as broken. */
  heartbeatMs?: number;
}

/** Something that was sent, until the hub has it. */
interface OutboxEntry {
  type: FrameType;
  msgId: string;
  parentId: string | null;
  to: string;
  timestamp: number;
  payload: Payload;
  /** Numbered frames are settled by an acknowledgement, requests by their answer. */
  isNumbered: boolean;
  seq: number | undefined;
  /** The connection it was sent over last. */
  connection: Connection | undefined;
  resolve(answer: Payload): void;
  reject(error: HubError): void;
}

/** What is needed to resume. */
interface ResumeState {
  channelId: string;
  agentId: string | null;
  token: string;
  /** The newest frame of the hub that arrived. */
  lastSeq: number;
  /** The number of the newest frame we sent. */
  sent: number;
}

interface Connection {
  socket?: Socket;
  openingId: string;
  isOpen: boolean;
  heardAt: number;
  /** Resolves with the reason when the connection has ended. */
  ended: ReturnType<typeof deferred<AttacheError>>;
}

export interface SendOptions {
  /** The agent, for an engine's `execute`. */
  to?: string;
  /** The same id again is the same frame. */
  msgId?: string;
}

const HEARTBEAT_MS = 10_000;
const RETRY_MS = [50, 5_000] as const;
/** How many numbered frames may be on their way. */
const MAX_UNCONFIRMED = 64;
/** A frame has at most 1 MiB, with its header. */
const MAX_PAYLOAD = (1 << 20) - 1_024;
const TOO_LARGE = {
  code: "too_large",
  message: "A message to the hub has at most 1 MiB.",
  hint: "Upload larger data as an artifact, and return its id.",
};
const PROTOCOL = "attache.envelope.v1";
/** Reasons for which the hub closes a connection that must not come back. */
const FINAL_REASONS = new Set(["superseded", "unauthenticated"]);

export class Channel {
  readonly #options: ChannelOptions;
  readonly #url: URL;
  #outbox: OutboxEntry[] = [];
  #state: ResumeState | undefined;
  #connection: Connection | undefined;
  #hasAckScheduled = false;

  constructor(options: ChannelOptions) {
    this.#options = options;
    this.#url = new URL("api/envelope/ws", options.hub.url);
    this.#url.protocol = this.#url.protocol === "https:" ? "wss:" : "ws:";
  }

  get isConnected(): boolean {
    return this.#connection?.isOpen ?? false;
  }

  /** Keeps the channel connected until the signal is aborted. Rejects if the hub won't have it. */
  async run(signal: AbortSignal): Promise<void> {
    const backoff = new Backoff(...RETRY_MS);
    let hasLived = false;
    while (!signal.aborted) {
      const { error, wasOpen } = await this.#live(signal);
      if (signal.aborted) return;
      hasLived ||= wasOpen;
      // A hub that refuses something for now, such as one with a full disk, is given more time.
      if (wasOpen && !(error instanceof HubError)) backoff.reset();
      if (isFinal(error, hasLived)) throw error;
      this.#options.onBroken?.(error);
      await sleep(backoff.next(), signal).catch(() => {});
    }
  }

  /** Sends a request and waits for its answer, across broken connections and for as long as a person takes. */
  request(payload: Payload, { to = "hub", msgId = crypto.randomUUID() }: SendOptions = {}): Promise<Payload> {
    return this.#enqueue("request", payload, { to, msgId, isNumbered: false });
  }

  /** Sends a notification or a chunk, and waits until the hub has it. Rejects if the hub refuses it. */
  async report(type: "notification" | "chunk", payload: Payload): Promise<void> {
    await this.#enqueue(type, payload, { to: "hub", msgId: crypto.randomUUID(), isNumbered: true });
  }

  /** Answers a request of the hub. */
  async respond(frame: Frame, payload: Payload): Promise<void> {
    const parentId = frame.header.msg_id;
    await this.#enqueue("response", payload, { to: "hub", msgId: crypto.randomUUID(), isNumbered: true, parentId });
  }

  /** Sends a notification about this connection only. Without one, it is dropped. */
  notify(payload: Payload): void {
    if (this.#connection?.isOpen) this.#write(this.#connection, "notification", crypto.randomUUID(), payload);
  }

  /** Forgets what hasn't arrived about a claim that is over. Its reports count as arrived; nothing waits for its requests. */
  discard(runId: string, epoch: number): void {
    const isOver = ({ payload }: OutboxEntry) => payload["task_run_id"] === runId && payload["epoch"] === epoch;
    const entries = this.#outbox.filter(isOver);
    this.#remove(entries);
    for (const entry of entries) if (entry.isNumbered) entry.resolve({});
    this.#pump();
  }

  #enqueue(
    type: FrameType,
    payload: Payload,
    given: { to: string; msgId: string; isNumbered: boolean; parentId?: string },
  ): Promise<Payload> {
    return new Promise((resolve, reject) => {
      const timestamp = Math.floor(Date.now() / 1000);
      this.#outbox.push({
        type,
        payload: sendable(payload),
        parentId: null,
        ...given,
        timestamp,
        seq: undefined,
        connection: undefined,
        resolve,
        reject,
      });
      this.#pump();
    });
  }

  /** One connection, from opening to end. */
  async #live(signal: AbortSignal): Promise<{ error: AttacheError; wasOpen: boolean }> {
    const connection: Connection = { openingId: "", isOpen: false, heardAt: Date.now(), ended: deferred() };
    let isOver = false;
    this.#connection = connection;
    const fail = (error: unknown) => connection.ended.resolve(asError(error, this.#url));
    const stop = () => {
      connection.socket?.close(1000);
      fail(new UnreachableError(this.#url.origin, "the channel was closed"));
    };
    signal.addEventListener("abort", stop, { once: true });
    const timer = setInterval(() => this.#check(connection), (this.#options.heartbeatMs ?? HEARTBEAT_MS) / 2);
    openSocket(this.#url, {
      headers: { authorization: `Bearer ${this.#options.hub.key}` },
      protocol: PROTOCOL,
      signal,
      onMessage: (text) => this.#receive(connection, text),
      onClose: (code, reason) =>
        fail(FINAL_REASONS.has(reason) ? closed(reason) : new Error(reason || `closed with ${code}`)),
    }).then((socket) => {
      if (isOver) return socket.close(1000);
      connection.socket = socket;
      this.#open(connection);
    }, fail);
    const error = await connection.ended.promise;
    isOver = true;
    clearInterval(timer);
    signal.removeEventListener("abort", stop);
    const wasOpen = connection.isOpen;
    connection.isOpen = false;
    connection.socket?.close(1000);
    return { error, wasOpen };
  }

  /** Resumes the previous channel if possible, otherwise registers a new one. */
  #open(connection: Connection): void {
    const state = this.#state;
    const payload = state
      ? { action: "resume", channel_id: state.channelId, resume_token: state.token, last_seq: state.lastSeq }
      : { action: "register", ...this.#options.registration() };
    connection.openingId = crypto.randomUUID();
    const metadata = connection.socket?.sentHeaders ? undefined : { auth_token: `bearer ${this.#options.hub.key}` };
    this.#write(connection, "request", connection.openingId, payload, { metadata });
  }

  #opened(connection: Connection, payload: Payload): void {
    const refusal = payload["ok"] === false ? new HubError(0, payload) : undefined;
    if (refusal && this.#state && (refusal.code === "resume_refused" || refusal.field === "payload.last_seq")) {
      // The answer with the new token was lost, or the hub was restored from an older copy. Registering keeps our runs.
      this.#state = undefined;
      return this.#open(connection);
    }
    if (refusal) return connection.ended.resolve(refusal);
    const opening = this.#state ? "resumed" : "registered";
    if (this.#state) {
      this.#state.token = payload["resume_token"];
      this.#state.lastSeq = Math.max(this.#state.lastSeq, payload["repaired"]?.to ?? 0);
    } else {
      this.#state = {
        channelId: payload["channel_id"],
        agentId: payload["agent_id"] ?? null,
        token: payload["resume_token"],
        lastSeq: 0,
        sent: 0,
      };
      for (const entry of this.#outbox) entry.seq = undefined;
    }
    connection.isOpen = true;
    this.#pump();
    this.#options.onConnected?.(opening, this.#state.agentId);
  }

  /** A connection can be dead without anybody saying so, and browsers can't send pings. */
  #check(connection: Connection): void {
    const heartbeatMs = this.#options.heartbeatMs ?? HEARTBEAT_MS;
    const silentMs = Date.now() - connection.heardAt;
    if (silentMs >= 2 * heartbeatMs) {
      connection.ended.resolve(new UnreachableError(this.#url.origin, "the hub stopped responding"));
    } else if (silentMs >= heartbeatMs && connection.isOpen) {
      // The answer to any request will do.
      const payload = { action: "ack", seq: this.#state!.lastSeq };
      this.#write(connection, "request", crypto.randomUUID(), payload);
    }
  }

  #receive(connection: Connection, text: string): void {
    if (connection !== this.#connection) return;
    connection.heardAt = Date.now();
    const frame = parse(text);
    if (!frame)
      return connection.ended.resolve(new UnexpectedReplyError(this.#url.origin, "it sent an unreadable frame"));
    const { header, payload } = frame;
    if (header.parent_id && header.parent_id === connection.openingId && !connection.isOpen)
      return this.#opened(connection, payload);
    if (typeof header.seq === "number" && this.#state) {
      this.#scheduleAck();
      // The hub sends again what it doesn't know to have arrived.
      if (header.seq <= this.#state.lastSeq) return;
      this.#state.lastSeq = header.seq;
    }
    if (header.type === "response") this.#answered(connection, header.parent_id ?? "", payload);
    else if (payload["action"] === "ack") this.#acknowledged(payload["seq"]);
    else this.#options.onFrame(frame);
  }

  #answered(connection: Connection, msgId: string, payload: Payload): void {
    const entry = this.#outbox.find((one) => one.msgId === msgId);
    if (!entry) return;
    if (payload["ok"] === false) {
      const refusal = new HubError(0, payload);
      // Over a new connection, everything is sent again in its order.
      if (isPassing(refusal)) return connection.ended.resolve(refusal);
      this.#remove([entry]);
      entry.reject(refusal);
      return this.#pump();
    }
    if (entry.isNumbered) return;
    this.#remove([entry]);
    entry.resolve(payload);
  }

  #acknowledged(seq: number): void {
    const arrived = this.#outbox.filter((entry) => entry.isNumbered && entry.seq !== undefined && entry.seq <= seq);
    this.#remove(arrived);
    for (const entry of arrived) entry.resolve({});
    this.#pump();
  }

  #remove(entries: OutboxEntry[]): void {
    this.#outbox = this.#outbox.filter((entry) => !entries.includes(entry));
  }

  /** One acknowledgement covers everything that arrived together. */
  #scheduleAck(): void {
    if (this.#hasAckScheduled) return;
    this.#hasAckScheduled = true;
    setTimeout(() => {
      this.#hasAckScheduled = false;
      if (this.#state) this.notify({ action: "ack", seq: this.#state.lastSeq });
    });
  }

  /** Sends what wasn't sent over this connection yet, in order, as far as the hub keeps up. */
  #pump(): void {
    const connection = this.#connection;
    if (!connection?.isOpen) return;
    let unconfirmed = 0;
    for (const entry of this.#outbox) {
      if (entry.isNumbered && ++unconfirmed > MAX_UNCONFIRMED) return;
      if (entry.connection === connection) continue;
      entry.connection = connection;
      if (entry.isNumbered) entry.seq ??= ++this.#state!.sent;
      this.#write(connection, entry.type, entry.msgId, entry.payload, entry);
    }
  }

  #write(
    { socket }: Connection,
    type: FrameType,
    msgId: string,
    payload: Payload,
    more: { parentId?: string | null; to?: string; timestamp?: number; seq?: number; metadata?: Payload } = {},
  ): void {
    const { parentId = null, to = "hub", timestamp = Math.floor(Date.now() / 1000), seq, metadata } = more;
    const header = { msg_id: msgId, parent_id: parentId, type, from: "sdk", to, timestamp, seq };
    socket?.send(JSON.stringify({ header, metadata, payload }));
  }
}

/**
 * A copy as it will arrive. What can't be sent is refused before it is queued: there, it would break this connection and
 * the next ones.
 */
function sendable(payload: Payload): Payload {
  const text = JSON.stringify(payload);
  if (new TextEncoder().encode(text).length > MAX_PAYLOAD) throw new HubError(0, { error: TOO_LARGE });
  return JSON.parse(text) as Payload;
}

function parse(text: string): Frame | undefined {
  try {
    const frame = JSON.parse(text) as Frame;
    return frame.header && frame.payload ? frame : undefined;
  } catch {
    return undefined;
  }
}

function isFinal(error: AttacheError, hasLived: boolean): boolean {
  if (isPassing(error)) return false;
  // A proxy may answer for a hub that restarts.
  return error instanceof UnexpectedReplyError ? !hasLived : true;
}

function closed(reason: string): AttacheError {
  if (reason === "superseded") {
    const hint = "Another worker connected for the same agent. Stop one of them.";
    return new AttacheError(reason, "Another connection took over this agent.", { hint });
  }
  return new AttacheError(reason, "The hub no longer accepts this key.", {
    hint: "Get a new key: `attache agents` or `agents.register`.",
  });
}

function asError(error: unknown, url: URL): AttacheError {
  return error instanceof AttacheError ? error : new UnreachableError(url.origin, (error as Error).message, error);
}
