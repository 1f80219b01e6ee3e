// The WebSocket of this package against a server that speaks raw bytes.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type AddressInfo, type Server, type Socket as TcpSocket } from "node:net";
import { afterEach, test } from "node:test";
import { openNodeSocket } from "../dist/node-socket.js";
import { until } from "./world.js";

const servers: Server[] = [];
afterEach(() => servers.splice(0).forEach((server) => server.close()));

interface Peer {
  socket: Awaited<ReturnType<typeof openNodeSocket>>;
  wire: TcpSocket;
  messages: string[];
  closes: Array<[number, string]>;
  received: () => Buffer;
}

/** Both ends of an open WebSocket. */
async function connected(
  headers: (accept: string) => string[] = (accept) => [`Sec-WebSocket-Accept: ${accept}`, "Sec-WebSocket-Protocol: p"],
  extra: Buffer = Buffer.alloc(0),
): Promise<Peer> {
  let received = Buffer.alloc(0);
  let wire!: TcpSocket;
  const server = createServer((tcp) => {
    wire = tcp;
    tcp.on("error", () => {});
    tcp.once("data", (bytes) => {
      const key = /sec-websocket-key: (.*)\r\n/i.exec(bytes.toString())![1]!;
      assert.match(bytes.toString(), /authorization: Bearer k\r\n/i);
      const accept = createHash("sha1").update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
      const head = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        ...headers(accept),
        "",
        "",
      ].join("\r\n");
      tcp.write(Buffer.concat([Buffer.from(head), extra]));
      tcp.on("data", (more) => (received = Buffer.concat([received, more])));
    });
  }).listen(0, "127.0.0.1");
  servers.push(server);
  await once(server, "listening");
  const messages: string[] = [];
  const closes: Array<[number, string]> = [];
  const socket = await openNodeSocket(new URL(`ws://127.0.0.1:${(server.address() as AddressInfo).port}/`), {
    headers: { authorization: "Bearer k" },
    protocol: "p",
    signal: new AbortController().signal,
    onMessage: (text) => messages.push(text),
    onClose: (code, reason) => closes.push([code, reason]),
  });
  return { socket, wire, messages, closes, received: () => received };
}

function frame(first: number, payload: Buffer | string): Buffer {
  const bytes = Buffer.from(payload);
  const head =
    bytes.length < 126
      ? [first, bytes.length]
      : bytes.length < 65_536
        ? [first, 126, bytes.length >> 8, bytes.length & 0xff]
        : [first, 127, 0, 0, 0, 0, ...[24, 16, 8, 0].map((shift) => (bytes.length >> shift) & 0xff)];
  return Buffer.concat([Buffer.from(head), bytes]);
}

/** What the client sent, unmasked. */
function unmasked(bytes: Buffer): Array<[number, string]> {
  const frames: Array<[number, string]> = [];
  while (bytes.length) {
    assert.ok(bytes[1]! & 0x80, "a client's frame is masked");
    const short = bytes[1]! & 0x7f;
    const extra = short < 126 ? 0 : short === 126 ? 2 : 8;
    const length = extra === 0 ? short : extra === 2 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2));
    const mask = bytes.subarray(2 + extra, 6 + extra);
    const payload = bytes.subarray(6 + extra, 6 + extra + length).map((byte, index) => byte ^ mask[index & 3]!);
    frames.push([bytes[0]! & 0x0f, Buffer.from(payload).toString()]);
    bytes = bytes.subarray(6 + extra + length);
  }
  return frames;
}

test("messages of every size arrive, byte by byte or all at once", async () => {
  const peer = await connected(undefined, frame(0x81, "with the upgrade"));
  const sizes = [0, 1, 125, 126, 65_535, 65_536, 300_000];
  for (const size of sizes) peer.wire.write(frame(0x81, "x".repeat(size)));
  for (const byte of frame(0x81, "bytes äö")) peer.wire.write(Buffer.from([byte]));
  peer.wire.write(
    Buffer.concat([frame(0x01, "frag"), frame(0x89, "ping in between"), frame(0x00, "men"), frame(0x80, "ted")]),
  );
  await until("all", () => peer.messages.length === sizes.length + 3);
  assert.deepEqual(
    peer.messages.map((text) => text.length),
    [16, ...sizes, 8, 10],
  );
  assert.deepEqual(peer.messages.slice(-2), ["bytes äö", "fragmented"]);
  for (const size of [5, 126, 70_000]) peer.socket.send("y".repeat(size));
  await until("all", () => peer.received().length > 70_000 + 126 + 5 + 30);
  assert.deepEqual(
    unmasked(peer.received()).map(([opcode, text]) => [opcode, text.length]),
    [
      [10, 15],
      [1, 5],
      [1, 126],
      [1, 70_000],
    ],
  );
  assert.equal(unmasked(peer.received())[0]![1], "ping in between");
  peer.wire.write(frame(0x88, Buffer.concat([Buffer.from([0x03, 0xe9]), Buffer.from("hub_stopped")])));
  await until("the end", () => peer.closes.length);
  assert.deepEqual(peer.closes, [[1001, "hub_stopped"]]);
});

for (const [name, bytes, code] of [
  ["a masked frame", Buffer.from([0x81, 0x80, 0, 0, 0, 0]), 1002],
  ["reserved bits", frame(0xc1, "x"), 1002],
  ["a continuation of nothing", frame(0x80, "x"), 1002],
  ["a fragmented ping", frame(0x09, "x"), 1002],
  ["an unknown opcode", frame(0x83, "x"), 1002],
  ["text that isn't UTF-8", frame(0x81, Buffer.from([0xff])), 1007],
  ["a message that is too large", Buffer.from([0x81, 127, 0, 0, 0, 1, 0, 0, 0, 0]), 1009],
] as const) {
  test(`${name} closes the connection`, async () => {
    const peer = await connected();
    peer.wire.write(bytes);
    await until("the end", () => peer.closes.length && peer.received().length);
    assert.equal(peer.received()[0], 0x88);
    assert.deepEqual([closeCode(peer.received()), peer.messages], [code, []]);
  });
}

function closeCode(bytes: Buffer): number {
  const mask = bytes.subarray(2, 6);
  return ((bytes[6]! ^ mask[0]!) << 8) | (bytes[7]! ^ mask[1]!);
}

test("a server that accepts something else is refused", async () => {
  await assert.rejects(
    connected(() => ["Sec-WebSocket-Accept: wrong", "Sec-WebSocket-Protocol: p"]),
    { code: "unexpected_reply" },
  );
  await assert.rejects(
    connected((accept) => [`Sec-WebSocket-Accept: ${accept}`]),
    { code: "unexpected_reply" },
  );
});

test("a connection that breaks is closed without a code of the server", async () => {
  const peer = await connected();
  peer.wire.resetAndDestroy();
  await until("the end", () => peer.closes.length);
  assert.equal(peer.closes[0]![0], 1006);
});
