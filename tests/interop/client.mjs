// Runs every operation of A2A with @a2a-js/sdk's own client, in version 1.0 or, through its compatibility layer, 0.3.
//
// Run: ATTACHE_KEY=ak_… node client.mjs HUB_URL AGENT jsonrpc|rest|grpc [1.0|0.3]
// Needs: @a2a-js/sdk (1.3.0), @grpc/grpc-js and @bufbuild/protobuf in a node_modules above this file;
// `attache adapter conformance` behind AGENT, which is also the hub's default agent; two agents without a device:
// AGENT-plain, without streaming or push, and AGENT-strict, which requires the extension
// https://example.com/ext/strict/v1; and a hub that allows webhooks to this machine.
// Exit code 0: everything conforms to the standard.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';
import { isDeepStrictEqual, inspect } from 'node:util';

import { Message, Role, SendMessageRequest, StreamResponse, TaskState, verifyAgentCardSignature } from '@a2a-js/sdk';
import {
  AgentCardResolver,
  ClientFactory,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
  ServiceParameters,
  createAuthenticatingFetchWithRetry,
  withA2AExtensions,
} from '@a2a-js/sdk/client';
import { GrpcTransportFactory } from '@a2a-js/sdk/client/grpc';
import * as errors from '@a2a-js/sdk/errors';
import * as grpc from '@grpc/grpc-js';

const [hub, agent, binding, version = '1.0'] = process.argv.slice(2);
const KEY = process.env.ATTACHE_KEY ?? '';
const LIMIT = 60_000;
const EVENTS = 'https://attache.dev/ext/events/v1';
const RUNTIME = 'https://attache.dev/ext/runtime/v1';
const STRICT = 'https://example.com/ext/strict/v1';
const BINDING = { jsonrpc: 'JSONRPC', rest: 'HTTP+JSON', grpc: 'GRPC' }[binding];
const S = TaskState;
const is03 = version === '0.3';
// Over these two bindings, this SDK's 0.3 has no file names, ignores `append`, and treats a field as bytes that other
// 0.3 SDKs, and Attaché, fill with base64 text (docs/decisions/0007-grpc.md).
const isOldProto = is03 && BINDING !== 'JSONRPC';

// --- Checks print one line each; the first failure ends the program.

const say = (text) => console.log(text);
const show = (value) => inspect(value, { depth: 12, breakLength: 120 });
console.debug = () => {};

function wrong(what, actual, expected) {
  say(`WRONG ${what}\n  expected: ${show(expected)}\n  actual:   ${show(actual)}`);
  process.exit(1);
}

function same(what, actual, expected) {
  if (!isDeepStrictEqual(actual, expected)) wrong(what, actual, expected);
  say(`ok    ${what}`);
}

function holds(what, isSo, actual) {
  if (!isSo) wrong(what, actual, 'something else');
  say(`ok    ${what}`);
}

async function refused(what, kind, call) {
  let actual;
  try {
    actual = await call();
  } catch (error) {
    if (!(error instanceof kind)) wrong(what, error, kind.name);
    say(`ok    ${what}: ${error.constructor.name}`);
    return error;
  }
  return wrong(what, actual, kind.name);
}

// In a JSON-RPC 0.3 stream, this SDK reports the code of a refusal, but has no error type for it.
const UnsupportedStream = {
  name: 'UnsupportedOperationError',
  [Symbol.hasInstance]: (error) =>
    error instanceof errors.UnsupportedOperationError || (is03 && /Code: -32004/.test(error.message)),
};

// --- A webhook that records notifications.

const notifications = [];
const waiting = new Set();
const server = createServer((request, response) => {
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    notifications.push({ headers: request.headers, body: JSON.parse(Buffer.concat(chunks)) });
    waiting.forEach((look) => look());
    response.writeHead(200).end();
  });
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const hookUrl = `http://127.0.0.1:${server.address().port}/hook`;

function notification(what, wanted) {
  return new Promise((resolve) => {
    const late = setTimeout(() => wrong(what, notifications, 'a notification'), LIMIT);
    const look = () => {
      const found = notifications.find(wanted);
      if (!found) return;
      clearTimeout(late);
      waiting.delete(look);
      resolve(found);
    };
    waiting.add(look);
    look();
  });
}

// --- Clients, created from the agent's base URL only.

let lastHeaders = new Map();
// With the trailing slash, as documented: the SDK resolves the card's path against it as a browser would.
const base = (name) => `${hub}/a2a/${name}/`;

function clientOf(name, key = KEY) {
  const bearer = async () => ({ authorization: `Bearer ${key}` });
  const noted = async (...request) => {
    const response = await fetch(...request);
    lastHeaders = response.headers;
    return response;
  };
  const fetchImpl = createAuthenticatingFetchWithRetry(noted, {
    headers: bearer,
    shouldRetryWithHeaders: async () => undefined,
  });
  const legacyCompat = { enabled: is03 };
  const noteHeaders = (options, nextCall) =>
    new grpc.InterceptingCall(nextCall(options), {
      start: (metadata, listener, next) =>
        next(metadata, {
          onReceiveMetadata: (received, pass) => {
            lastHeaders = new Map(Object.entries(received.getMap()));
            pass(received);
          },
        }),
    });
  const tell = (options, nextCall) =>
    new grpc.InterceptingCall(nextCall(options), {
      start: (metadata, listener, next) => {
        metadata.set('authorization', `Bearer ${key}`);
        // 0.3 has no field for the agent's name.
        if (is03) metadata.set('x-attache-agent', name);
        next(metadata, listener);
      },
    });
  const transport = {
    JSONRPC: new JsonRpcTransportFactory({ fetchImpl, legacyCompat }),
    'HTTP+JSON': new RestTransportFactory({ fetchImpl, legacyCompat }),
    GRPC: new GrpcTransportFactory({
      grpcChannelCredentials: grpc.credentials.createInsecure(),
      grpcCallOptions: { interceptors: [tell, noteHeaders] },
      legacyCompat,
    }),
  }[BINDING];
  // The card is public, but a key must be valid if sent. A 0.3 client names its version when it requests the card.
  const says = (url, init) => fetch(url, { ...init, headers: { ...init?.headers, 'A2A-Version': version } });
  const cardResolver = new DefaultAgentCardResolver({ legacyCompat, fetchImpl: says });
  const factory = new ClientFactory({ transports: [transport], preferredTransports: [BINDING], cardResolver });
  // Over gRPC, 0.3 reaches every agent at the default agent's address; the metadata names the agent.
  return factory.createFromUrl(base(is03 && BINDING === 'GRPC' ? agent : name));
}

// --- Messages.

const message = (behaviour, members = {}) => ({
  messageId: `${behaviour}-${randomUUID()}`,
  role: 'ROLE_USER',
  parts: [{ text: 'hello' }],
  ...members,
});
const answer = (text, task) => message('say', { parts: [{ text }], taskId: task.id });
const request = (sent, configuration = {}) => SendMessageRequest.fromJSON({ message: sent, configuration });
const send = (client, sent, configuration, options) => client.sendMessage(request(sent, configuration), options);
const asking = (...uris) => ({ serviceParameters: ServiceParameters.create(withA2AExtensions(...uris)) });
const texts = (parts) => parts.map((part) => part.content.value);

async function taskOf(client, sent, configuration, options) {
  const task = await send(client, sent, configuration, options);
  holds('answered with a task', task.status !== undefined, task);
  return task;
}

async function all(stream) {
  const seen = [];
  for await (const update of stream) seen.push(update.payload);
  return seen;
}

// --- The checks.

async function card() {
  const found = await AgentCardResolver.default.resolve(base(agent));
  same('card: name', found.name, agent);
  const versions = found.supportedInterfaces.filter((place) => place.protocolBinding === BINDING);
  same('card: the binding, newest version first', versions.map((place) => place.protocolVersion), ['1.0', '0.3']);
  const { streaming, pushNotifications, extendedAgentCard, extensions } = found.capabilities;
  same('card: capabilities', [streaming, pushNotifications, extendedAgentCard], [true, true, true]);
  holds('card: our extension', extensions.some((extension) => extension.uri === EVENTS), extensions);
  // The verifier gets the JSON as received, because a card parsed by the SDK has lost its security schemes.
  const verify = verifyAgentCardSignature(async (kid, jku) => {
    const { keys } = await (await fetch(jku)).json();
    return keys.find((key) => key.kid === kid);
  });
  const raw = await (await fetch(`${base(agent)}.well-known/agent-card.json`, { headers: { 'A2A-Version': '1.0' } })).json();
  await verify(raw);
  const changed = await verify({ ...raw, description: 'changed' }).then(
    () => true,
    () => false,
  );
  same('card: its signature holds, and breaks when it is changed', changed, false);
}

async function extendedCard(client) {
  const found = await client.getAgentCard();
  const runtime = found.capabilities.extensions.find((extension) => extension.uri === RUNTIME);
  same('extended card: where the agent is', runtime?.params?.online, true);
}

async function sendBlocking(client) {
  const sent = message('tck-artifact-data', {
    parts: [
      { text: 'grüß 😀\n' },
      ...(isOldProto ? [] : [{ raw: 'AP8=', filename: 'a.bin', mediaType: 'application/octet-stream' }]),
      { url: 'https://example.com/x', filename: isOldProto ? '' : 'x.html', mediaType: 'text/html' },
      { data: { n: [1, 2.5, null, { deep: true }], '': 'empty name' } },
    ],
    metadata: { mine: { list: [1, 'two'] } },
  });
  const task = await taskOf(client, sent);
  same('blocking: completed', task.status.state, S.TASK_STATE_COMPLETED);
  const expected = Message.toJSON(Message.fromJSON({ ...sent, taskId: task.id, contextId: task.contextId }));
  same('blocking: the message comes back as it was sent', Message.toJSON(task.history[0]), expected);
  same('artifact of data', texts(task.artifacts[0].parts), [{ key: 'value', count: 42 }]);

  const made = async (behaviour) => (await taskOf(client, message(behaviour))).artifacts[0].parts[0];
  same('artifact of text', (await made('tck-artifact-text')).content.value, 'Generated text content');
  const [bytes, name] = isOldProto ? ['dGNr', ''] : ['tck', 'output.txt'];
  const file = await made('tck-artifact-file');
  same('artifact of a file', [file.content.value.toString(), file.filename, file.mediaType], [bytes, name, 'text/plain']);
  const link = await made('tck-artifact-file-url');
  same('artifact of a link', [link.content.value, link.filename], ['https://example.com/output.txt', name]);

  const greeted = await taskOf(client, message('tck-complete-task'));
  same('status message', texts(greeted.status.message.parts), ['Hello from TCK']);
  same('status message: by the agent', greeted.status.message.role, Role.ROLE_AGENT);
  const reply = await send(client, message('tck-message-response'));
  same('answered with a message', texts(reply.parts), ['Direct message response']);
  const ends = async (behaviour) => (await taskOf(client, message(behaviour))).status.state;
  same('rejected', await ends('tck-reject-task'), S.TASK_STATE_REJECTED);
  same('failed', await ends('tck-task-failure'), S.TASK_STATE_FAILED);
  const again = message('tck-complete-task');
  same('the same message again is the same task', (await taskOf(client, again)).id, (await taskOf(client, again)).id);
  return greeted;
}

async function cancel(client) {
  const task = await taskOf(client, message('tck-cancel'), { returnImmediately: true });
  holds('at once: it has not ended', [S.TASK_STATE_SUBMITTED, S.TASK_STATE_WORKING].includes(task.status.state), task);
  const target = { tenant: '', id: task.id, metadata: undefined };
  const cancelled = await client.cancelTask(target);
  same('cancel', [cancelled.id, cancelled.status.state], [task.id, S.TASK_STATE_CANCELED]);
  const found = await client.getTask({ tenant: '', id: task.id });
  same('get: cancelled', found.status.state, S.TASK_STATE_CANCELED);
  await refused('cancel what has ended', errors.TaskNotCancelableError, () => client.cancelTask(target));
}

async function stream(client) {
  const [first, ...rest] = await all(client.sendMessageStream(request(message('tck-stream-chunked'))));
  same('stream: the task comes first', first.$case, 'task');
  const task = first.value;
  same('stream: all of one task', [...new Set(rest.map((update) => update.value.taskId))], [task.id]);
  same('stream: ends with completed', rest.at(-1).value.status.state, S.TASK_STATE_COMPLETED);
  const append = !isOldProto;
  const pieces = [
    ['chunk-1 ', false, false],
    ['chunk-1.5 ', append, false],
    ['chunk-2', append, true],
  ];
  const actual = rest
    .filter((update) => update.$case === 'artifactUpdate')
    .map(({ value }) => [value.artifact.parts[0].content.value, value.append, value.lastChunk]);
  // Everything from before the stream started is in the task.
  same('stream: the artifact, piece by piece', actual, pieces.slice(task.artifacts[0]?.parts.length ?? 0));
  const whole = await client.getTask({ tenant: '', id: task.id });
  same('stream: the whole artifact afterwards', texts(whole.artifacts[0].parts).join(''), 'chunk-1 chunk-1.5 chunk-2');
  const numbers = rest
    .filter((update) => update.$case === 'statusUpdate')
    .map(({ value }) => value.metadata[EVENTS].generation);
  holds('stream: numbered in order', numbers.every((n, at) => at === 0 || n > numbers[at - 1]), numbers);
}

async function turns(client) {
  const task = await taskOf(client, message('tck-multi-turn'));
  same('turn 1: asks', task.status.state, S.TASK_STATE_INPUT_REQUIRED);
  same('turn 1: the question', texts(task.status.message.parts), ['More input is needed.']);

  const config = {
    tenant: '',
    taskId: task.id,
    id: 'mine',
    url: hookUrl,
    token: 'a token',
    authentication: { scheme: 'Bearer', credentials: 'of-the-webhook' },
  };
  const made = await client.createTaskPushNotificationConfig(config);
  same('push: created', [made.taskId, made.id, made.url], [task.id, 'mine', hookUrl]);
  await client.createTaskPushNotificationConfig({ ...config, id: 'other', url: `${hookUrl}/other` });
  const got = await client.getTaskPushNotificationConfig({ tenant: '', taskId: task.id, id: 'mine' });
  same('push: get', got, made);
  const listing = { tenant: '', taskId: task.id, pageSize: 0, pageToken: '' };
  const ids = async () => (await client.listTaskPushNotificationConfig(listing)).configs.map((entry) => entry.id).sort();
  same('push: list', await ids(), ['mine', 'other']);
  await client.deleteTaskPushNotificationConfig({ tenant: '', taskId: task.id, id: 'other' });
  same('push: deleted', await ids(), ['mine']);

  const watch = () => {
    const updates = client.resubscribeTask({ tenant: '', id: task.id });
    const first = updates.next();
    return { first, rest: first.then(() => all(updates)) };
  };
  const watchers = [watch(), watch()];
  const [began] = await Promise.all(watchers.map((watcher) => watcher.first));
  same('subscribe: the task as it is comes first', [began.value.payload.$case, began.value.payload.value.id], ['task', task.id]);

  const done = await taskOf(client, answer('done', task));
  same('turn 2: completed', [done.id, done.status.state], [task.id, S.TASK_STATE_COMPLETED]);
  const spoken = ['hello', 'More input is needed.', 'done'];
  same('history: everything that was said', done.history.map((said) => texts(said.parts)[0]), spoken);
  // 0.3 has no zero over gRPC: it is the same as an omitted value.
  const lengths = [[2, spoken.slice(-2)], [100, spoken], ...(is03 ? [] : [[0, []]])];
  for (const [historyLength, expected] of lengths) {
    const found = await client.getTask({ tenant: '', id: task.id, historyLength });
    same(`history: at most ${historyLength}`, found.history.map((said) => texts(said.parts)[0]), expected);
  }

  const [one, two] = await Promise.all(watchers.map((watcher) => watcher.rest));
  const states = one.map((update) => update.value.status.state);
  same('subscribe: every change', states, [S.TASK_STATE_WORKING, S.TASK_STATE_COMPLETED]);
  same('subscribe: two see the same', one, two);

  const told = (body) => (is03 ? body : (body.statusUpdate ?? { status: {} }));
  const ended = (id) => ({ body }) => [told(body).id, told(body).taskId].includes(id) && /completed$/i.test(told(body).status.state);
  const { headers, body } = await notification('push: received', ended(task.id));
  const media = is03 ? 'application/json' : 'application/a2a+json';
  const names = ['content-type', 'x-a2a-notification-token', 'authorization'];
  same('push: headers', names.map((name) => headers[name]), [media, 'a token', 'Bearer of-the-webhook']);
  if (!is03) {
    const { payload } = StreamResponse.fromJSON(body);
    const said = texts(payload.value.status.message.parts);
    same('push: how it ended', [payload.$case, said], ['statusUpdate', ['Hello from TCK']]);
  }
  const inline = { url: hookUrl, token: 'inline' };
  const other = await taskOf(client, message('tck-complete-task'), { taskPushNotificationConfig: inline });
  const second = await notification('push: with the message', ended(other.id));
  same('push: with the message', second.headers['x-a2a-notification-token'], 'inline');
}

async function listing(client) {
  const contextId = `context-${randomUUID()}`;
  const sent = [];
  for (const behaviour of ['tck-artifact-text', 'tck-complete-task', 'tck-input-required']) {
    const task = await taskOf(client, message(behaviour, { contextId }));
    same('list: in the context of the caller', task.contextId, contextId);
    sent.unshift(task.id);
  }
  const ask = (members = {}) =>
    client.listTasks({
      tenant: '',
      contextId,
      status: S.TASK_STATE_UNSPECIFIED,
      pageToken: '',
      statusTimestampAfter: undefined,
      ...members,
    });
  const ids = (found) => found.tasks.map((task) => task.id);
  const first = await ask({ pageSize: 2 });
  same('list: page 1, latest first', ids(first), sent.slice(0, 2));
  same('list: sizes', [first.pageSize, first.totalSize], [2, 3]);
  const second = await ask({ pageSize: 2, pageToken: first.nextPageToken });
  same('list: page 2', [ids(second), second.nextPageToken], [sent.slice(2), '']);
  const bare = await ask({ status: S.TASK_STATE_COMPLETED });
  same('list: by state', ids(bare), sent.slice(1));
  same('list: no artifacts unless asked for', bare.tasks.map((task) => task.artifacts.length), [0, 0]);
  const whole = await ask({ status: S.TASK_STATE_COMPLETED, includeArtifacts: true, historyLength: 0 });
  same('list: with artifacts', whole.tasks.flatMap((task) => task.artifacts).map(({ parts }) => texts(parts)), [['Generated text content']]);
  same('list: without history', whole.tasks.map((task) => task.history.length), [0, 0]);
  const hours = (n) => new Date(Date.now() + n * 3_600_000).toISOString();
  same('list: since an hour ago', ids(await ask({ statusTimestampAfter: hours(-1) })), sent);
  same('list: from now on', ids(await ask({ statusTimestampAfter: hours(1) })), []);
  await client.cancelTask({ tenant: '', id: sent[0], metadata: undefined });
}

async function authorization(client) {
  const task = await taskOf(client, message('tck-auth-required'));
  same('a permission is waited for', task.status.state, S.TASK_STATE_AUTH_REQUIRED);
  const data = task.status.message.parts.find((part) => part.content.$case === 'data').content.value;
  const updates = client.resubscribeTask({ tenant: '', id: task.id });
  const first = (await updates.next()).value.payload;
  same('a permission: the stream stays open', first.value.status.state, S.TASK_STATE_AUTH_REQUIRED);
  const id = data.permission_request.permission_request_id;
  const decided = await fetch(`${hub}/api/v1/permission-requests/${id}/decision`, {
    method: 'POST',
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ approved: true }),
  });
  same('a permission: decided', decided.status, 200);
  same('a permission: the task goes on', (await all(updates)).at(-1).value.status.state, S.TASK_STATE_COMPLETED);
}

async function refusals(client, ended) {
  const { TaskNotFoundError, UnsupportedOperationError, RequestMalformedError } = errors;
  await refused('get what is not there', TaskNotFoundError, () => client.getTask({ tenant: '', id: 'no-such-task' }));
  await refused('a message to a task that is not there', TaskNotFoundError, () => send(client, message('x', { taskId: 'no-such-task' })));
  await refused('a message to a task that has ended', UnsupportedOperationError, () => send(client, answer('more', ended)));
  await refused('subscribe to what has ended', UnsupportedStream, () => all(client.resubscribeTask({ tenant: '', id: ended.id })));
  const config = { tenant: '', taskId: ended.id, id: 'none' };
  await refused('a push config that is not there', TaskNotFoundError, () => client.getTaskPushNotificationConfig(config));
  await refused('a message without parts', RequestMalformedError, () => send(client, message('x', { parts: [] })));
  const stranger = await clientOf(agent, 'ak_wrong');
  const error = await refused('a wrong key', Error, () => stranger.getTask({ tenant: '', id: ended.id }));
  holds('a wrong key: says so', /401|UNAUTHENTICATED|credential is unknown/.test(show(error)), error);
}

async function others() {
  const plain = await clientOf(`${agent}-plain`);
  const task = await taskOf(plain, message('x'), { returnImmediately: true });
  same('an agent that is offline: the task waits', task.status.state, S.TASK_STATE_SUBMITTED);
  const config = { tenant: '', taskId: task.id, id: 'x', url: hookUrl, token: '', authentication: undefined };
  // Bypasses the client, which would check the card and not ask the agent.
  const { transport } = plain;
  const { PushNotificationNotSupportedError, ExtensionSupportRequiredError } = errors;
  const versioned = { serviceParameters: { 'A2A-Version': version } };
  await refused('push where there is none', PushNotificationNotSupportedError, () => transport.createTaskPushNotificationConfig(config, versioned));
  await refused('a stream where there is none', UnsupportedStream, () => all(transport.resubscribeTask({ tenant: '', id: task.id }, versioned)));
  await plain.cancelTask({ tenant: '', id: task.id, metadata: undefined });

  const strict = await clientOf(`${agent}-strict`);
  await refused('a required extension', ExtensionSupportRequiredError, () => send(strict, message('x'), { returnImmediately: true }));
  const options = asking(STRICT, EVENTS, 'https://example.com/unknown');
  const taken = await taskOf(strict, message('x'), { returnImmediately: true }, options);
  const echoed = (lastHeaders.get('a2a-extensions') ?? '').split(',').map((uri) => uri.trim());
  same('extensions: those that were used are named', echoed.sort(), [EVENTS, STRICT].sort());
  await strict.cancelTask({ tenant: '', id: taken.id, metadata: undefined }, asking(STRICT));
}

await card();
const client = await clientOf(agent);
same('the version that is spoken', client.protocolVersion, version);
const ended = await sendBlocking(client);
await cancel(client);
await stream(client);
await turns(client);
if (!is03) await listing(client);
await authorization(client);
await refusals(client, ended);
await others();
await extendedCard(client);
say(`done  @a2a-js/sdk ${version}, ${binding}`);
process.exit(0);
