// Requests to a hub: the credential, time limits, retries that can't take effect twice, and errors.
import { IDEMPOTENT, type Operations } from "./api.js";
import { HubError, UnexpectedReplyError, UnreachableError, errno, isPassing, isTemporary } from "./errors.js";
import { Backoff, sleep } from "./timing.js";

export interface ClientOptions {
  /** The hub's address, for example `http://127.0.0.1:7800`. */
  url: string;
  /** A person's or an agent's key (`ak_…`), or a token. */
  key: string;
  /** How long one request may take, in addition to the time it asks the hub to wait. Default: 30 seconds. */
  timeoutMs?: number;
  /** How long the hub may be unreachable before a call or a stream gives up. Default: two minutes. */
  retryTimeoutMs?: number;
  /** How long a stream may be silent before it is opened again. The hub sends something every 15 seconds. Default: 45. */
  idleTimeoutMs?: number;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch;
}

export interface RequestOptions {
  signal?: AbortSignal;
}

type Arguments<O> = (O extends { path: infer P } ? { path: P } : unknown) &
  (O extends { query: infer Q } ? { query?: Q } : unknown) &
  (O extends { body: infer B } ? { body: B } : O extends { body?: infer B } ? { body?: B } : unknown) &
  RequestOptions & {
    /** The same key again is the same request. Without one, each request gets a new key where the hub accepts one. */
    idempotencyKey?: string;
    /** Whether sending the request twice does no harm. Reads, and requests with an idempotency key, never do. */
    isRepeatable?: boolean;
  };

export type OperationArguments<K extends keyof Operations> =
  RequestOptions extends Arguments<Operations[K]>
    ? [given?: Arguments<Operations[K]>]
    : [given: Arguments<Operations[K]>];

/** One request, before it is known which endpoint it is for. */
interface PlainRequest extends RequestOptions {
  method: string;
  path: string;
  query?: Record<string, unknown>;
  headers?: Record<string, string>;
  body?: BodyInit;
  isRepeatable: boolean;
  /** Replaces the client's limit. 0: none. */
  timeoutMs?: number;
}

/** Sends requests to one hub with one key. */
export class HubConnection {
  readonly url: URL;
  readonly key: string;
  readonly timeoutMs: number;
  readonly retryTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions) {
    this.url = new URL(options.url.endsWith("/") ? options.url : `${options.url}/`);
    this.key = options.key.trim();
    this.timeoutMs = options.timeoutMs ?? 30_000;
    this.retryTimeoutMs = options.retryTimeoutMs ?? 120_000;
    this.idleTimeoutMs = options.idleTimeoutMs ?? 45_000;
    this.#fetch = options.fetch ?? globalThis.fetch.bind(globalThis);
  }

  /** Any endpoint of the hub, by method and path as in openapi.json. */
  async request<K extends keyof Operations>(
    operation: K,
    ...rest: OperationArguments<K>
  ): Promise<Operations[K]["response"]> {
    const given = (rest[0] ?? {}) as Arguments<{ path: object; query: object; body?: unknown }>;
    const [method, template] = operation.split(" ", 2) as [string, string];
    const headers: Record<string, string> = { accept: "application/json" };
    if (given.body !== undefined) headers["content-type"] = "application/json";
    const key = given.idempotencyKey ?? (IDEMPOTENT.has(operation) ? `sdk-${crypto.randomUUID()}` : undefined);
    if (key !== undefined) headers["idempotency-key"] = key;
    const response = await this.send({
      method,
      path: fill(template, given.path as Record<string, string> | undefined),
      query: given.query as Record<string, unknown> | undefined,
      headers,
      body: given.body === undefined ? undefined : JSON.stringify(given.body),
      isRepeatable: given.isRepeatable ?? (method === "GET" || key !== undefined),
      signal: given.signal,
    });
    return (response.status === 204 ? undefined : await this.json(response)) as Operations[K]["response"];
  }

  /** Sends until the hub answers, as long as repeating the request can't make it take effect twice. */
  async send(request: PlainRequest, isStream = false): Promise<Response> {
    const backoff = new Backoff(100, 2_000);
    const giveUpAt = Date.now() + this.retryTimeoutMs;
    for (;;) {
      try {
        return await this.sendOnce(request, isStream);
      } catch (error) {
        const retries = request.isRepeatable ? isPassing(error) : isTemporary(error);
        const wait = (error instanceof HubError && error.retryAfterMs) || backoff.next();
        if (!retries || Date.now() + wait > giveUpAt) throw error;
        await sleep(wait, request.signal);
      }
    }
  }

  /** Sends once. Any status but success is an error. `isStream` leaves the body without a time limit. */
  async sendOnce(request: PlainRequest, isStream = false): Promise<Response> {
    const url = new URL(request.path.slice(1), this.url);
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined && value !== null) url.searchParams.set(name, String(value));
    }
    const waitMs = Number(url.searchParams.get("wait_ms") ?? 0);
    const limit = new AbortController();
    const timeoutMs = request.timeoutMs ?? this.timeoutMs + waitMs;
    const timer = timeoutMs ? setTimeout(() => limit.abort(new TimeoutError()), timeoutMs) : undefined;
    const signal = request.signal ? AbortSignal.any([limit.signal, request.signal]) : limit.signal;
    try {
      const response = await this.#fetch(url, {
        method: request.method,
        headers: { authorization: `Bearer ${this.key}`, ...request.headers },
        body: request.body,
        signal,
        // A redirect could carry the key to another server.
        redirect: "error",
        cache: "no-store",
        ...(request.body instanceof ReadableStream ? { duplex: "half" } : {}),
      } as RequestInit);
      if (!response.ok) throw await this.#refusal(response);
      return isStream ? response : await complete(response);
    } catch (error) {
      request.signal?.throwIfAborted();
      if (error instanceof HubError || error instanceof UnexpectedReplyError) throw error;
      throw this.unreachable(error);
    } finally {
      clearTimeout(timer);
    }
  }

  async json(response: Response): Promise<unknown> {
    try {
      return await response.json();
    } catch {
      throw new UnexpectedReplyError(this.url.origin, "its response isn't JSON");
    }
  }

  unreachable(error: unknown): UnreachableError {
    const reason =
      error instanceof TimeoutError
        ? "no answer in time"
        : (errno(error) ?? String((error as Error)?.message ?? error));
    return new UnreachableError(this.url.origin, reason, error);
  }

  async #refusal(response: Response): Promise<Error> {
    const text = await response.text();
    const after = Number(response.headers.get("retry-after") ?? Number.NaN);
    try {
      const body = JSON.parse(text) as Record<string, unknown>;
      if (typeof (body["error"] as { code?: unknown } | undefined)?.code === "string") {
        return new HubError(response.status, body, Number.isFinite(after) ? after * 1000 : undefined);
      }
    } catch {
      // Not JSON, so not the hub's own words.
    }
    if (response.status >= 502 && response.status <= 504)
      return this.unreachable(new Error(`status ${response.status} from a proxy`));
    return new UnexpectedReplyError(this.url.origin, `status ${response.status}`);
  }
}

class TimeoutError extends Error {}

/** The response with its whole body read, so that a connection that breaks in the middle is noticed in time. */
async function complete(response: Response): Promise<Response> {
  const hasBody = response.status !== 204 && response.status !== 304;
  const body = await response.arrayBuffer();
  return new Response(hasBody ? body : null, { status: response.status, headers: response.headers });
}

function fill(template: string, path: Record<string, string> = {}): string {
  return template.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(path[name] ?? ""));
}
