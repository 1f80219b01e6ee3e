// Runs every operation of A2A 0.3 with the client of @a2a-js/sdk 0.3, which supports no other version.
//
// Run: ATTACHE_KEY=ak_… node client_v03.mjs HUB_URL AGENT jsonrpc|rest|grpc
// Needs: @a2a-js/sdk (0.3.14), @grpc/grpc-js and @bufbuild/protobuf in a node_modules above this file;
// `attache adapter conformance` behind AGENT, which is also the hub's default agent, since 0.3 can't name one over gRPC.
// The card is used as published. Exit code 0: everything conforms to the standard.

import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual, inspect } from 'node:util';

import {
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  TaskNotCancelableError,
  TaskNotFoundError,
  createAuthenticatingFetchWithRetry,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import * as grpc from '@grpc/grpc-js';

const [hub, agent, binding] = process.argv.slice(2);
const KEY = process.env.ATTACHE_KEY ?? '';
const BINDING = { jsonrpc: 'JSONRPC', rest: 'HTTP+JSON', grpc: 'GRPC' }[binding];
const RUNTIME = 'https://attache.dev/ext/runtime/v1';
// Over these two bindings, the SDK has no file names, and treats as bytes what other 0.3 SDKs, and Attaché, treat as base64 text.
const isProto = BINDING !== 'JSONRPC';

const say = (text) => console.log(text);
const show = (value) => inspect(value, { depth: 12, breakLength: 120 });

function same(what, actual, expected) {
  if (!isDeepStrictEqual(actual, expected)) {
    say(`WRONG ${what}\n  expected: ${show(expected)}\n  actual:   ${show(actual)}`);
    process.exit(1);
  }
  say(`ok    ${what}`);
}

async function refused(what, kind, call) {
  const actual = await call().then((answer) => answer, (error) => error);
  same(`${what}: ${actual?.message}`, actual instanceof kind, true);
}

const bearer = async () => ({ authorization: `Bearer ${KEY}` });
const fetchImpl = createAuthenticatingFetchWithRetry(fetch, { headers: bearer, shouldRetryWithHeaders: async () => undefined });
const authorized = (options, nextCall) =>
  new grpc.InterceptingCall(nextCall(options), {
    start: (metadata, listener, next) => {
      metadata.set('authorization', `Bearer ${KEY}`);
      next(metadata, listener);
    },
  });
const transports = [
  new JsonRpcTransportFactory({ fetchImpl }),
  new RestTransportFactory({ fetchImpl }),
  new GrpcTransportFactory({ grpcCallOptions: { interceptors: [authorized] } }),
];
const factory = new ClientFactory({
  transports: transports.filter((transport) => transport.protocolName === BINDING),
  preferredTransports: [BINDING],
  cardResolver: new DefaultAgentCardResolver(),
});
const client = await factory.createFromUrl(`${hub}/a2a/${agent}/`);

const message = (behaviour, members = {}) => ({
  kind: 'message',
  messageId: `${behaviour}-${randomUUID()}`,
  role: 'user',
  parts: [{ kind: 'text', text: 'hello' }],
  ...members,
});
const send = (sent, configuration = { blocking: true }) => client.sendMessage({ message: sent, configuration });
const all = async (stream) => {
  const seen = [];
  for await (const update of stream) seen.push(update);
  return seen;
};

const sent = message('tck-artifact-data', {
  parts: [
    { kind: 'text', text: 'grüß 😀\n' },
    { kind: 'file', file: { uri: 'https://example.com/x', mimeType: 'text/html', ...(isProto ? {} : { name: 'x.html' }) } },
    { kind: 'data', data: { n: [1, 2.5, { deep: true }] } },
  ],
});
const done = await send(sent);
same('blocking: completed', [done.kind, done.status.state], ['task', 'completed']);
const plain = (part) => JSON.parse(JSON.stringify(part));
const kinds = (parts) => parts.map((part) => [part.kind, part.text ?? part.data ?? part.file.uri]);
same('blocking: the message comes back as it was sent', kinds(plain(done.history[0].parts)), kinds(sent.parts));
same('artifact of data', plain(done.artifacts[0].parts[0].data), { key: 'value', count: 42 });
same('get', (await client.getTask({ id: done.id })).status.state, 'completed');
await refused('cancel what has ended', TaskNotCancelableError, () => client.cancelTask({ id: done.id }));
await refused('get what is not there', TaskNotFoundError, () => client.getTask({ id: 'no-such-task' }));

const updates = await all(client.sendMessageStream({ message: message('tck-stream-chunked') }));
same('stream: the task comes first', updates[0].kind, 'task');
same('stream: ends with completed', [updates.at(-1).kind, updates.at(-1).status.state], ['status-update', 'completed']);
const whole = await client.getTask({ id: updates[0].id });
same('stream: the whole artifact afterwards', whole.artifacts[0].parts.map((part) => part.text).join(''), 'chunk-1 chunk-1.5 chunk-2');

const asked = await send(message('tck-multi-turn'));
same('turn 1: asks', asked.status.state, 'input-required');
const config = { taskId: asked.id, pushNotificationConfig: { id: 'mine', url: 'http://127.0.0.1:9/hook' } };
await client.setTaskPushNotificationConfig(config);
const got = await client.getTaskPushNotificationConfig({ id: asked.id, pushNotificationConfigId: 'mine' });
same('push: get', got.pushNotificationConfig.url, 'http://127.0.0.1:9/hook');
await client.deleteTaskPushNotificationConfig({ id: asked.id, pushNotificationConfigId: 'mine' });
same('push: deleted', (await client.listTaskPushNotificationConfig({ id: asked.id })).length, 0);
const answered = await send(message('say', { taskId: asked.id, parts: [{ kind: 'text', text: 'done' }] }));
same('turn 2: completed', [answered.id, answered.status.state], [asked.id, 'completed']);
const spoken = answered.history.map((said) => said.parts[0].text);
same('history: everything that was said', spoken, ['hello', 'More input is needed.', 'done']);

const begun = await send(message('tck-cancel'), { blocking: false });
same('cancel', (await client.cancelTask({ id: begun.id })).status.state, 'canceled');

const card = await client.getAgentCard();
const runtime = card.capabilities.extensions.find((extension) => extension.uri === RUNTIME);
same('extended card: where the agent is', runtime?.params?.online, true);
say(`done  @a2a-js/sdk 0.3, ${binding}`);
process.exit(0);
