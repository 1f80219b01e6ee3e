// A WebSocket for Node, which has none of its own before version 22, and whose own can't send headers.
import { createHash, randomBytes } from "node:crypto";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import type { Duplex } from "node:stream";
import { HubError, UnexpectedReplyError, UnreachableError, errno } from "./errors.js";
import type { Socket, SocketOptions } from "./socket.js";
import { FrameError, FrameReader, Opcode, encodeFrame } from "./websocket-frames.js";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/** A frame of the hub is bounded by twice the largest input of a run. */
const MAX_MESSAGE = 16 << 20;
const OPEN_TIMEOUT_MS = 10_000;
const MAX_ERROR_BODY = 64 << 10;

export function openNodeSocket(url: URL, options: SocketOptions): Promise<Socket> {
  const isEncrypted = url.protocol === "wss:";
  const address = new URL(url);
  address.protocol = isEncrypted ? "https:" : "http:";
  const key = randomBytes(16).toString("base64");
  const headers = {
    ...options.headers,
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-key": key,
    "sec-websocket-version": "13",
    "sec-websocket-protocol": options.protocol,
  };
  return new Promise((resolve, reject) => {
    const request = (isEncrypted ? httpsRequest : httpRequest)(address, {
      headers,
      agent: false,
      timeout: OPEN_TIMEOUT_MS,
      signal: options.signal,
    });
    request.once("error", (error) => reject(new UnreachableError(url.origin, errno(error) ?? error.message, error)));
    request.once("timeout", () => request.destroy(new Error("no answer in time")));
    request.once("response", (response) => refusal(url, response).then(reject, reject));
    request.once("upgrade", (response, stream, head) => {
      const accept = createHash("sha1")
        .update(key + GUID)
        .digest("base64");
      const { "sec-websocket-accept": accepted, "sec-websocket-protocol": protocol } = response.headers;
      if (accepted !== accept || protocol !== options.protocol) {
        stream.destroy();
        return reject(new UnexpectedReplyError(url.origin, "it accepted a WebSocket, but not this one"));
      }
      resolve(new NodeSocket(stream, head, options));
    });
    request.end();
  });
}

class NodeSocket implements Socket {
  readonly sentHeaders = true;
  readonly #stream: Duplex;
  readonly #options: SocketOptions;
  readonly #reader = new FrameReader(MAX_MESSAGE);
  readonly #text = new TextDecoder("utf-8", { fatal: true });
  #closing: { code: number; reason: string } | undefined;
  #isDone = false;

  constructor(stream: Duplex, head: Buffer, options: SocketOptions) {
    this.#stream = stream;
    this.#options = options;
    if ("setNoDelay" in stream) (stream as import("node:net").Socket).setNoDelay(true);
    if ("setTimeout" in stream) (stream as import("node:net").Socket).setTimeout(0);
    stream.on("error", () => stream.destroy());
    stream.on("end", () => stream.destroy());
    stream.once("close", () => this.#done());
    // What arrived with the upgrade is read after the caller has the socket.
    if (head.length) stream.unshift(head);
    setImmediate(() => stream.on("data", (bytes: Buffer) => this.#receive(bytes)));
  }

  send(text: string): void {
    if (!this.#closing && !this.#isDone) this.#stream.write(encodeFrame(Opcode.Text, Buffer.from(text)));
  }

  close(code = 1000, reason = ""): void {
    if (this.#closing || this.#isDone) return;
    this.#closing = { code: 1006, reason: "" };
    const payload = Buffer.concat([Buffer.from([code >> 8, code & 0xff]), Buffer.from(reason)]);
    this.#stream.write(encodeFrame(Opcode.Close, payload));
    // The peer closes the connection. If it doesn't, we do.
    setTimeout(() => this.#stream.destroy(), 1_000).unref();
  }

  #receive(bytes: Buffer): void {
    try {
      for (const { opcode, payload } of this.#reader.push(bytes)) {
        if (opcode === Opcode.Text) this.#options.onMessage(this.#decode(payload));
        else if (opcode === Opcode.Ping) this.#stream.write(encodeFrame(Opcode.Pong, payload));
        else if (opcode === Opcode.Close) this.#closed(payload);
      }
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      this.close(error.closeCode, error.message);
      this.#stream.removeAllListeners("data");
      this.#stream.end(() => this.#stream.destroy());
    }
  }

  #decode(payload: Buffer): string {
    try {
      return this.#text.decode(payload);
    } catch {
      throw new FrameError(1007, "a text isn't UTF-8");
    }
  }

  #closed(payload: Buffer): void {
    const code = payload.length >= 2 ? payload.readUInt16BE(0) : 1005;
    const reason = payload.subarray(2).toString();
    if (!this.#closing) this.#stream.write(encodeFrame(Opcode.Close, payload.subarray(0, 2)));
    this.#closing = { code, reason };
    this.#stream.end();
  }

  #done(): void {
    if (this.#isDone) return;
    this.#isDone = true;
    const { code, reason } = this.#closing ?? { code: 1006, reason: "the connection broke" };
    this.#options.onClose(code, reason);
  }
}

/** Only a hub's own error counts: what a proxy says is no reason to give up. */
async function refusal(url: URL, response: IncomingMessage): Promise<Error> {
  let text = "";
  for await (const chunk of response) if (text.length < MAX_ERROR_BODY) text += String(chunk);
  const status = response.statusCode ?? 0;
  try {
    const body = JSON.parse(text) as Record<string, unknown>;
    if (typeof (body["error"] as { code?: unknown })?.code === "string") return new HubError(status, body);
  } catch {
    // Not JSON.
  }
  if (status >= 502 && status <= 504) return new UnreachableError(url.origin, `status ${status} from a proxy`);
  return new UnexpectedReplyError(url.origin, `status ${status} instead of a WebSocket`);
}
