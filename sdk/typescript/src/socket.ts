// The WebSocket that a channel uses. Browsers have one; node.ts installs ours for Node.
import { UnreachableError } from "./errors.js";

export interface SocketOptions {
  /** Sent with the upgrade, where the platform can. */
  headers: Record<string, string>;
  protocol: string;
  signal: AbortSignal;
  onMessage(text: string): void;
  /** Called once, unless the socket never opened. */
  onClose(code: number, reason: string): void;
}

export interface Socket {
  /** Whether `headers` were sent. */
  readonly sentHeaders: boolean;
  send(text: string): void;
  close(code?: number, reason?: string): void;
}

export type SocketOpener = (url: URL, options: SocketOptions) => Promise<Socket>;

let opener: SocketOpener = openWebSocket;

export const openSocket: SocketOpener = (url, options) => opener(url, options);

/** Replaces the platform's WebSocket. */
export function setSocketOpener(replacement: SocketOpener): void {
  opener = replacement;
}

/** The WebSocket of browsers, which can't send headers and says nothing about a failed upgrade. */
function openWebSocket(url: URL, options: SocketOptions): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, options.protocol);
    let isOpen = false;
    const abort = () => socket.close();
    options.signal.addEventListener("abort", abort, { once: true });
    socket.onopen = () => {
      isOpen = true;
      resolve({
        sentHeaders: false,
        send: (text) => socket.send(text),
        close: (code = 1000, reason = "") => socket.close(code, reason),
      });
    };
    socket.onmessage = (message) => options.onMessage(String(message.data));
    socket.onclose = ({ code, reason }) => {
      options.signal.removeEventListener("abort", abort);
      if (isOpen) options.onClose(code, reason);
      else reject(new UnreachableError(url.origin, "the WebSocket couldn't be opened"));
    };
  });
}
