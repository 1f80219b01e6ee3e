// An executor that answers like the recorded one, and unpacks and packs with the published @awcp/transport-archive. Checks
// that what it is sent has the form of what the reference implementation's delegator sent.
//
// Run: node executor.mjs FOLDER            prints `listening PORT`, and `done N checks` when its result was acknowledged
// The task decides what it does: `EDIT` changes files, `FAIL` fails, `DROP` closes the event stream before the end, and
// `EVIL` returns an archive with a path that leads out of the folder. With `WAIT`, it does so only after FOLDER/go exists.
import { existsSync, readFileSync, readdirSync, rmSync, writeFileSync, appendFileSync, mkdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { ArchiveExecutorTransport } from '@awcp/transport-archive';

import { done, filled, sameShape } from './shape.mjs';

const recorded = JSON.parse(readFileSync(new URL('./exchange.json', import.meta.url), 'utf8'));
const [folder] = process.argv.slice(2);
const transport = new ArchiveExecutorTransport({ tempDir: join(folder, 'archives') });
await transport.initialize(folder);

const state = { invite: null, stream: null, result: { status: 'running' } };

const body = async (request) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  return parts.length === 0 ? undefined : JSON.parse(Buffer.concat(parts).toString() || 'null');
};

// As recorded, with the members of this task.
const event = (kind, values, members) => ({ ...filled(recorded[kind], values), ...members });

function edit(root) {
  const seen = readdirSync(root).sort().join(' ');
  appendFileSync(join(root, 'edit.txt'), 'and the peer\n');
  mkdirSync(join(root, 'made'));
  writeFileSync(join(root, 'made', 'new.txt'), 'made by the peer\n');
  rmSync(join(root, 'old.txt'));
  return `saw ${seen}`;
}

async function work(start) {
  const { delegationId, transportHandle } = start;
  const values = { DELEGATION: delegationId, SNAPSHOT: 'snap_0123456789ab' };
  const send = (event) => state.stream.write(`data: ${JSON.stringify(event)}\n\n`);
  const localPath = join(folder, delegationId);
  await transport.setup({ delegationId, handle: transportHandle, localPath });
  send(event('status', values));
  const { prompt } = state.invite.task;
  while (prompt.includes('WAIT') && !existsSync(join(folder, 'go'))) await sleep(50);
  if (prompt.includes('FAIL')) {
    const failed = event('failed', values);
    state.result = { status: 'error', completedAt: failed.timestamp, error: { code: failed.code, message: failed.message } };
    send(failed);
    state.stream.end();
    return;
  }
  const summary = edit(join(localPath, state.invite.environment.resources[0].name));
  let { snapshotBase64 } = await transport.captureSnapshot({ delegationId, localPath });
  if (prompt.includes('EVIL')) {
    // The same length, in the header and in the directory.
    const bytes = Buffer.from(snapshotBase64, 'base64').toString('latin1').replaceAll('workspace/edit.txt', '../../../../../evi');
    snapshotBase64 = Buffer.from(bytes, 'latin1').toString('base64');
  }
  state.result = { status: 'completed', completedAt: recorded.done.timestamp, summary, snapshotBase64 };
  if (prompt.includes('DROP')) {
    state.stream.destroy();
    return;
  }
  send(event('snapshot', values, { summary, snapshotBase64 }));
  send(event('done', values, { summary }));
  state.stream.end();
}

const server = createServer(async (request, response) => {
  const answer = (status, value) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(value));
  };
  try {
    const message = await body(request);
    const id = state.invite?.delegationId;
    const route = `${request.method} ${id ? request.url.replace(id, 'DELEGATION') : request.url}`;
    const is = (name) => route === `${recorded[name].request.method} ${recorded[name].request.url}`;
    if (is('invite') && message.type === 'INVITE') {
      sameShape(message, recorded.invite.request.body, 'INVITE');
      state.invite = message;
      answer(200, filled(recorded.invite.answer, { DELEGATION: message.delegationId }));
    } else if (is('start') && message.type === 'START') {
      sameShape(message, recorded.start.request.body, 'START');
      if (!state.stream) throw new Error('START came before anybody listened to events');
      answer(200, recorded.start.answer);
      work(message).catch((error) => console.log('failed', error));
    } else if (is('events')) {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
      state.stream = response;
    } else if (is('acknowledge')) {
      answer(200, recorded.acknowledge.answer);
      done();
    } else if (route === 'GET /awcp/tasks/DELEGATION/result') {
      answer(200, state.result);
    } else if (route === 'POST /awcp/cancel/DELEGATION') {
      answer(200, { ok: true, cancelled: true });
      console.log('cancelled');
    } else {
      throw new Error(`no such route was recorded: ${route}`);
    }
  } catch (error) {
    console.log('failed', error);
    answer(500, { error: error.message });
  }
});
server.listen(0, '127.0.0.1', () => console.log(`listening ${server.address().port}`));
