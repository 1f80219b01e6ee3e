// A delegator that sends what the recorded one sent, and packs and applies with the published @awcp/transport-archive. Checks
// that the answers and events have the form of those of the reference implementation's executor.
//
// Run: ATTACHE_KEY=… node delegator.mjs URL FOLDER SCRATCH PROMPT
import { createHash, randomBytes } from 'node:crypto';
import { cpSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { ArchiveDelegatorTransport } from '@awcp/transport-archive';

import { done, filled, sameShape } from './shape.mjs';

const recorded = JSON.parse(readFileSync(new URL('./exchange.json', import.meta.url), 'utf8'));
const [url, folder, scratch, prompt] = process.argv.slice(2);
const delegationId = `dlg_${randomBytes(16).toString('hex')}`;
const values = { DELEGATION: delegationId };

const post = async (path, message) => {
  const headers = { 'content-type': 'application/json' };
  const response = await fetch(`${url}${path}`, { method: 'POST', headers, body: message && JSON.stringify(message) });
  return { status: response.status, body: await response.json() };
};
const equal = (found, wanted, what) => {
  if (JSON.stringify(found) !== JSON.stringify(wanted)) throw new Error(`${what} is ${JSON.stringify(found)}`);
};

// The folder under the name that the invitation gives it.
const exported = join(scratch, 'export');
const resource = recorded.invite.request.body.environment.resources[0].name;
mkdirSync(exported, { recursive: true });
cpSync(folder, join(exported, resource), { recursive: true });
const transport = new ArchiveDelegatorTransport({ tempDir: join(scratch, 'archives') });
await transport.initialize();

const invite = filled(recorded.invite.request.body, values);
invite.task.prompt = prompt;
const refused = await post('', invite);
equal([refused.status, refused.body.type, refused.body.code], [200, 'ERROR', 'AUTH_FAILED'], 'an invitation without a key');
invite.auth = { type: 'bearer', credential: process.env.ATTACHE_KEY };
const accept = await post('', invite);
equal(accept.status, 200, 'the status of ACCEPT');
sameShape(accept.body, filled(recorded.invite.answer, values), 'ACCEPT');

const stream = await fetch(`${url}/tasks/${delegationId}/events`, { headers: { accept: 'text/event-stream' } });
const handle = await transport.prepare({ delegationId, exportPath: exported, ttlSeconds: invite.lease.ttlSeconds });
equal(handle.checksum, createHash('sha256').update(Buffer.from(handle.workspaceBase64, 'base64')).digest('hex'), 'checksum');
const start = { ...filled(recorded.start.request.body, values), transportHandle: handle };
start.lease.expiresAt = new Date(Date.now() + 120_000).toISOString();
equal(await post('', start), { status: 200, body: recorded.start.answer }, 'the answer to START');

let buffer = '';
const kinds = [];
let snapshot, last;
for await (const chunk of stream.body.pipeThrough(new TextDecoderStream())) {
  buffer += chunk;
  const lines = buffer.split('\n');
  buffer = lines.pop();
  // The reference implementation reads only lines that start so.
  for (const line of lines.filter((line) => line.startsWith('data: '))) {
    const event = JSON.parse(line.slice(6));
    if (kinds.at(-1) !== event.type) kinds.push(event.type);
    sameShape(event, recorded[event.type === 'error' ? 'failed' : event.type], event.type);
    if (event.type === 'snapshot') snapshot = event;
    last = event;
  }
}
console.log(kinds.join(' '));
if (last.type === 'error') {
  console.log(`${last.code}: ${last.message}`);
} else {
  equal(last.recommendedSnapshotId, snapshot.snapshotId, 'the recommended snapshot');
  const resources = [{ name: resource, source: folder, mode: 'rw' }];
  await transport.applySnapshot({ delegationId, snapshotData: snapshot.snapshotBase64, resources });
  const result = await (await fetch(`${url}/tasks/${delegationId}/result`)).json();
  equal([result.status, result.snapshotBase64], ['completed', snapshot.snapshotBase64], 'the result');
}
equal(await post(`/tasks/${delegationId}/ack`), { status: 200, body: recorded.acknowledge.answer }, 'the acknowledgement');
for (let tries = 0; ; tries += 1) {
  const gone = await fetch(`${url}/tasks/${delegationId}/result`);
  if (gone.status === recorded.unknownResult.status) {
    sameShape(await gone.json(), recorded.unknownResult.answer, 'an unknown result');
    break;
  }
  if (tries > 100) throw new Error('the result is still there');
  await new Promise((resolve) => setTimeout(resolve, 50));
}
const cancel = await post(`/cancel/${delegationId}`);
equal(cancel.status, recorded.unknownCancel.status, 'the status of an unknown cancellation');
sameShape(cancel.body, recorded.unknownCancel.answer, 'an unknown cancellation');
sameShape(await (await fetch(`${url}/status`)).json(), recorded.service.answer, 'the status of the service');
console.log(last.summary ?? '');
done();
