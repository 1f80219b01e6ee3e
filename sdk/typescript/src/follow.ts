// Streams that survive broken connections: each message once and in order, resumed after the last one that arrived.
import { UnexpectedReplyError, isPassing } from "./errors.js";
import type { HubConnection } from "./http.js";
import { sseMessages, type SseMessage } from "./sse.js";
import { Backoff, sleep } from "./timing.js";

export interface FollowOptions {
  path: string;
  /** Continue after this message. */
  after: number;
  signal?: AbortSignal;
  /** Whether a message is the last one. */
  isLast(message: SseMessage): boolean;
  /** Asked when the hub closes a stream that had nothing new: whether there will never be more. */
  hasEnded(): Promise<boolean>;
}

/** The messages of a stream until the last one. */
export async function* follow(
  hub: HubConnection,
  options: FollowOptions,
): AsyncGenerator<SseMessage & { cursor: number }> {
  const { signal } = options;
  const backoff = new Backoff(100, 5_000);
  let cursor = options.after;
  let awaySince: number | undefined;
  for (;;) {
    let isFruitful = false;
    try {
      for await (const message of connect(hub, options, cursor, () => (awaySince = undefined))) {
        backoff.reset();
        const seq = Number(message.id);
        // The hub may repeat what it doesn't know to have arrived.
        if (!Number.isSafeInteger(seq) || seq <= cursor) continue;
        isFruitful = true;
        cursor = seq;
        yield { ...message, cursor };
        if (options.isLast(message)) return;
      }
      if (!isFruitful && (await options.hasEnded())) return;
    } catch (error) {
      signal?.throwIfAborted();
      awaySince ??= Date.now();
      if (!isPassing(error) || Date.now() - awaySince > hub.retryTimeoutMs) throw error;
    }
    await sleep(backoff.next(), signal);
  }
}

async function* connect(
  hub: HubConnection,
  { path, signal }: FollowOptions,
  cursor: number,
  onOpen: () => void,
): AsyncGenerator<SseMessage> {
  const idle = new AbortController();
  const headers = { accept: "text/event-stream", "last-event-id": String(cursor) };
  const both = signal ? AbortSignal.any([signal, idle.signal]) : idle.signal;
  const response = await hub.sendOnce({ method: "GET", path, headers, isRepeatable: true, signal: both }, true);
  if (!response.headers.get("content-type")?.startsWith("text/event-stream") || !response.body) {
    throw new UnexpectedReplyError(hub.url.origin, "it didn't send an event stream");
  }
  onOpen();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const heard = () => {
    clearTimeout(timer);
    timer = setTimeout(() => idle.abort(new Error("the stream went silent")), hub.idleTimeoutMs);
  };
  const watched = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      heard();
      controller.enqueue(chunk);
    },
  });
  heard();
  try {
    yield* sseMessages(response.body.pipeThrough(watched));
  } catch (error) {
    signal?.throwIfAborted();
    throw hub.unreachable(idle.signal.aborted ? idle.signal.reason : error);
  } finally {
    clearTimeout(timer);
    idle.abort();
  }
}
