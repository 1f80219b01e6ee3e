// RFC 6455 for a client: frames to bytes, and bytes to messages.
import { randomFillSync } from "node:crypto";

export enum Opcode {
  Continuation = 0,
  Text = 1,
  Binary = 2,
  Close = 8,
  Ping = 9,
  Pong = 10,
}

export interface Message {
  opcode: Opcode;
  payload: Buffer;
}

/** The peer broke the protocol. `closeCode` is the reason to give. */
export class FrameError extends Error {
  constructor(
    readonly closeCode: number,
    message: string,
  ) {
    super(message);
  }
}

/** One complete, masked frame. */
export function encodeFrame(opcode: Opcode, payload: Buffer): Buffer {
  const length = payload.length;
  const extra = length < 126 ? 0 : length < 65_536 ? 2 : 8;
  const start = 2 + extra + 4;
  const frame = Buffer.allocUnsafe(start + length);
  frame[0] = 0x80 | opcode;
  frame[1] = 0x80 | (extra === 0 ? length : extra === 2 ? 126 : 127);
  if (extra === 2) frame.writeUInt16BE(length, 2);
  if (extra === 8) frame.writeBigUInt64BE(BigInt(length), 2);
  const mask = randomFillSync(frame.subarray(2 + extra, start));
  for (let index = 0; index < length; index++) frame[start + index] = payload[index]! ^ mask[index & 3]!;
  return frame;
}

/** Takes bytes as they arrive and returns complete messages, with their fragments joined. */
export class FrameReader {
  #chunks: Buffer[] = [];
  #size = 0;
  #fragments: Buffer[] = [];
  #fragmented: Opcode | undefined;

  constructor(readonly maxMessage: number) {}

  push(chunk: Buffer): Message[] {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
    const messages: Message[] = [];
    for (let frame = this.#frame(); frame; frame = this.#frame()) {
      const message = this.#join(frame);
      if (message) messages.push(message);
    }
    return messages;
  }

  #frame(): (Message & { isFinal: boolean }) | undefined {
    const head = this.#peek(2);
    if (!head) return undefined;
    const [first, second] = [head[0]!, head[1]!];
    if (first & 0x70) throw new FrameError(1002, "reserved bits are set");
    if (second & 0x80) throw new FrameError(1002, "a server's frame is masked");
    const opcode: Opcode = first & 0x0f;
    const isFinal = (first & 0x80) !== 0;
    const short = second & 0x7f;
    if (opcode >= Opcode.Close && (short > 125 || !isFinal))
      throw new FrameError(1002, "a control frame is too long or fragmented");
    if (opcode > Opcode.Pong || (opcode > Opcode.Binary && opcode < Opcode.Close))
      throw new FrameError(1002, "an unknown opcode");
    const extra = short < 126 ? 0 : short === 126 ? 2 : 8;
    const header = this.#peek(2 + extra);
    if (!header) return undefined;
    const length = extra === 0 ? short : extra === 2 ? header.readUInt16BE(2) : Number(header.readBigUInt64BE(2));
    if (length > this.maxMessage) throw new FrameError(1009, "a message is too large");
    const whole = this.#peek(header.length + length);
    if (!whole) return undefined;
    this.#drop(whole.length);
    return { opcode, isFinal, payload: whole.subarray(header.length) };
  }

  #join({ opcode, isFinal, payload }: Message & { isFinal: boolean }): Message | undefined {
    if (opcode >= Opcode.Close) return { opcode, payload };
    if ((opcode === Opcode.Continuation) !== (this.#fragmented !== undefined))
      throw new FrameError(1002, "fragments out of order");
    if (isFinal && opcode !== Opcode.Continuation) return { opcode, payload };
    this.#fragmented ??= opcode;
    this.#fragments.push(payload);
    const size = this.#fragments.reduce((sum, fragment) => sum + fragment.length, 0);
    if (size > this.maxMessage) throw new FrameError(1009, "a message is too large");
    if (!isFinal) return undefined;
    const message = { opcode: this.#fragmented, payload: Buffer.concat(this.#fragments) };
    this.#fragments = [];
    this.#fragmented = undefined;
    return message;
  }

  /** The next bytes, joined, or undefined until there are enough. */
  #peek(length: number): Buffer | undefined {
    if (this.#size < length) return undefined;
    if (this.#chunks[0]!.length < length) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0]!.subarray(0, length);
  }

  #drop(length: number): void {
    this.#size -= length;
    const rest = this.#chunks[0]!.subarray(length);
    if (rest.length) this.#chunks[0] = rest;
    else this.#chunks.shift();
  }
}
