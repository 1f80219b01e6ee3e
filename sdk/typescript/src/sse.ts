// Server-sent events: the messages of a stream of bytes.

export interface SseMessage {
  event: string;
  id: string;
  data: string;
}

/** Complete messages only: one that is cut off by the end of the stream is dropped. */
export async function* sseMessages(body: ReadableStream<Uint8Array>): AsyncGenerator<SseMessage> {
  const decoder = new TextDecoder();
  const reader = body.getReader();
  let rest = "";
  let message = { event: "message", id: "", data: [] as string[] };
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      rest += decoder.decode(value, { stream: true });
      // A CR at the end may be half of a line break.
      const lines = rest.split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop()!;
      for (const line of lines) {
        if (line !== "") {
          field(message, line);
        } else {
          if (message.data.length) yield { event: message.event, id: message.id, data: message.data.join("\n") };
          message = { event: "message", id: message.id, data: [] };
        }
      }
    }
  } finally {
    // The connection is no longer needed, or it is broken already.
    reader.cancel().catch(() => {});
  }
}

function field(message: { event: string; id: string; data: string[] }, line: string): void {
  const colon = line.indexOf(":");
  if (colon === 0) return;
  const name = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
  if (name === "data") message.data.push(value);
  else if (name === "event") message.event = value;
  else if (name === "id" && !value.includes("\0")) message.id = value;
}
