"""Runs every operation of A2A 1.0 with a2a-sdk's own client.

Run: ATTACHE_KEY=ak_… python client_v10.py HUB_URL AGENT jsonrpc|rest|grpc
Needs: a2a-sdk[grpc,signing] (1.3.0); `attache adapter conformance` behind AGENT; two agents without a device:
AGENT-plain, without streaming, push or an extended card, and AGENT-strict, which requires the extension
https://example.com/ext/strict/v1; and a hub that allows webhooks to this machine.
Exit code 0: everything conforms to the standard.
"""

import asyncio
import json
import sys
import urllib.request

from datetime import datetime, timedelta, timezone
from uuid import uuid4

import grpc
import httpx

from a2a.client import ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.client import ClientCallContext
from a2a.client.errors import A2AClientError
from a2a.client.service_parameters import ServiceParametersFactory, with_a2a_extensions
from a2a.types import a2a_pb2 as a2a
from a2a.utils import errors
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from google.protobuf import json_format
from google.protobuf.timestamp_pb2 import Timestamp
from jwt import PyJWKSet

from checks import EVENTS, KEY, LIMIT, RUNTIME, Webhook, decide, holds, refused, same


STRICT = 'https://example.com/ext/strict/v1'
BINDINGS = {'jsonrpc': 'JSONRPC', 'rest': 'HTTP+JSON', 'grpc': 'GRPC'}
SUBMITTED, WORKING, COMPLETED = a2a.TASK_STATE_SUBMITTED, a2a.TASK_STATE_WORKING, a2a.TASK_STATE_COMPLETED


class Key(CredentialService):
    """Supplies the key for any scheme that the card requires."""

    def __init__(self, key):
        self.key = key

    async def get_credentials(self, security_scheme_name, context):
        return self.key


class Headers(grpc.aio.UnaryUnaryClientInterceptor):
    """Records the headers of the last response, which the SDK does not expose."""

    def __init__(self):
        self.last = {}

    async def of_http(self, response):
        self.last = dict(response.headers)

    async def intercept_unary_unary(self, continuation, details, request):
        call = await continuation(details, request)
        self.last = dict(await call.initial_metadata())
        return call


class World:
    def __init__(self, hub, agent, binding):
        self.hub, self.agent, self.binding = hub, agent, BINDINGS[binding]
        self.headers = Headers()
        self.webhook = Webhook()

    async def client(self, agent, streaming, key=KEY):
        """Creates a client from the agent's card, given only the agent's base URL."""
        config = ClientConfig(
            streaming=streaming,
            httpx_client=httpx.AsyncClient(timeout=LIMIT, event_hooks={'response': [self.headers.of_http]}),
            grpc_channel_factory=lambda url: grpc.aio.insecure_channel(url, interceptors=[self.headers]),
            supported_protocol_bindings=[self.binding],
        )
        factory = ClientFactory(config)
        url = f'{self.hub}/a2a/{agent}'
        return await factory.create_from_url(url, [AuthInterceptor(Key(key))], signature_verifier=VERIFY)


def key_of(kid, jku):
    with urllib.request.urlopen(jku, timeout=LIMIT) as answer:
        return PyJWKSet.from_dict(json.load(answer))[kid]


VERIFY = create_signature_verifier(key_of, ['ES256'])


def message(behaviour, *parts, **members):
    parts = parts or (a2a.Part(text='hello'),)
    return a2a.Message(message_id=f'{behaviour}-{uuid4()}', role=a2a.ROLE_USER, parts=parts, **members)


def say(text, task):
    return message('say', a2a.Part(text=text), task_id=task.id)


def asking(*extensions):
    return ClientCallContext(service_parameters=ServiceParametersFactory.create([with_a2a_extensions(list(extensions))]))


async def updates(client, sent, context=None, **configuration):
    """Sends a message and returns all responses."""
    request = a2a.SendMessageRequest(message=sent, configuration=a2a.SendMessageConfiguration(**configuration))
    return [update async for update in client.send_message(request, context=context)]


async def task_of(client, sent, context=None, **configuration):
    """Sends a message that has a single response and returns its task."""
    [update] = await updates(client, sent, context, **configuration)
    holds('answered with a task', update.HasField('task'), update)
    return update.task


def texts(parts):
    return [part.text for part in parts]


async def card(world, once):
    found = once._card
    same('card: name', found.name, world.agent)
    interfaces = [i for i in found.supported_interfaces if i.protocol_binding == world.binding]
    same('card: the binding, newest version first', [i.protocol_version for i in interfaces], ['1.0', '0.3'])
    able = found.capabilities
    same('card: capabilities', (able.streaming, able.push_notifications, able.extended_agent_card), (True, True, True))
    holds('card: our extension', EVENTS in [extension.uri for extension in able.extensions], able)
    holds('card: skills', len(found.skills) > 0 and all(skill.tags for skill in found.skills), found.skills)
    changed = a2a.AgentCard()
    changed.CopyFrom(found)
    changed.description += ' changed'
    try:
        VERIFY(changed)
        sys.exit('WRONG card: a changed one passed as signed')
    except InvalidSignaturesError:
        print('ok    card: its signature is valid, and becomes invalid when it is changed')


async def extended_card(once):
    found = await once.get_extended_agent_card(a2a.GetExtendedAgentCardRequest(), signature_verifier=VERIFY)
    params = {extension.uri: json_format.MessageToDict(extension.params) for extension in found.capabilities.extensions}
    same('extended card: where the agent is, signed too', params.get(RUNTIME, {}).get('online'), True)


async def send_blocking(once):
    sent = message(
        'tck-artifact-data',
        a2a.Part(text='grüß 😀\n'),
        a2a.Part(raw=b'\x00\xff', filename='a.bin', media_type='application/octet-stream'),
        a2a.Part(url='https://example.com/x', media_type='text/html'),
    )
    data = sent.parts.add()
    json_format.ParseDict({'n': [1, 2.5, None, {'deep': True}], '': 'empty name'}, data.data)
    sent.metadata.update({'mine': {'list': [1, 'two']}})
    task = await task_of(once, sent)
    same('blocking: completed', task.status.state, COMPLETED)
    holds('blocking: has a context', bool(task.context_id), task)
    expected = a2a.Message()
    expected.CopyFrom(sent)
    expected.task_id, expected.context_id = task.id, task.context_id
    same('blocking: the message comes back as it was sent', task.history[0], expected)
    [artifact] = task.artifacts
    same('artifact of data', json_format.MessageToDict(artifact.parts[0].data), {'key': 'value', 'count': 42})

    text = await task_of(once, message('tck-artifact-text'))
    same('artifact of text', texts(text.artifacts[0].parts), ['Generated text content'])
    file = (await task_of(once, message('tck-artifact-file'))).artifacts[0].parts[0]
    same('artifact of a file', (file.raw, file.filename, file.media_type), (b'tck', 'output.txt', 'text/plain'))
    link = (await task_of(once, message('tck-artifact-file-url'))).artifacts[0].parts[0]
    same('artifact of a link', (link.url, link.filename), ('https://example.com/output.txt', 'output.txt'))

    greeted = await task_of(once, message('tck-complete-task'))
    same('status message', texts(greeted.status.message.parts), ['Hello from TCK'])
    same('status message: by the agent', greeted.status.message.role, a2a.ROLE_AGENT)
    [answer] = await updates(once, message('tck-message-response'))
    same('answered with a message', texts(answer.message.parts), ['Direct message response'])
    same('rejected', (await task_of(once, message('tck-reject-task'))).status.state, a2a.TASK_STATE_REJECTED)
    same('failed', (await task_of(once, message('tck-task-failure'))).status.state, a2a.TASK_STATE_FAILED)
    again = message('tck-complete-task')
    same('the same message again is the same task', (await task_of(once, again)).id, (await task_of(once, again)).id)
    return greeted


async def cancel(once):
    task = await task_of(once, message('tck-cancel'), return_immediately=True)
    holds('at once: it has not ended', task.status.state in (SUBMITTED, WORKING), task)
    cancelled = await once.cancel_task(a2a.CancelTaskRequest(id=task.id))
    same('cancel', (cancelled.id, cancelled.status.state), (task.id, a2a.TASK_STATE_CANCELED))
    found = await once.get_task(a2a.GetTaskRequest(id=task.id))
    same('get: cancelled', found.status.state, a2a.TASK_STATE_CANCELED)
    call = once.cancel_task(a2a.CancelTaskRequest(id=task.id))
    await refused('cancel what has ended', errors.TaskNotCancelableError, call)


async def stream(streaming):
    first, *rest = await updates(streaming, message('tck-stream-chunked'))
    holds('stream: the task comes first', first.HasField('task'), first)
    ids = {getattr(update, update.WhichOneof('payload')).task_id for update in rest}
    same('stream: all of one task', ids, {first.task.id})
    last = rest[-1].status_update
    same('stream: ends with completed', last.status.state, COMPLETED)
    pieces = [('chunk-1 ', False, False), ('chunk-1.5 ', True, False), ('chunk-2', True, True)]
    received = [
        (u.artifact_update.artifact.parts[0].text, u.artifact_update.append, u.artifact_update.last_chunk)
        for u in rest
        if u.HasField('artifact_update')
    ]
    # Everything from before the stream started is in the task.
    known = len(first.task.artifacts[0].parts) if first.task.artifacts else 0
    same('stream: the artifact, piece by piece', received, pieces[known:])
    whole = await streaming.get_task(a2a.GetTaskRequest(id=first.task.id))
    same('stream: the whole artifact afterwards', ''.join(texts(whole.artifacts[0].parts)), 'chunk-1 chunk-1.5 chunk-2')
    numbers = [dict(u.status_update.metadata[EVENTS])['generation'] for u in rest if u.HasField('status_update')]
    holds('stream: numbered in order', numbers == sorted(set(numbers)), numbers)
    # It can't be known in advance that the answer is a message, so the stream has a task that ends with it.
    *_, last = await updates(streaming, message('tck-message-response'))
    same('stream: an answer by message', texts(last.status_update.status.message.parts), ['Direct message response'])


async def turns(world, once, streaming):
    """Multi-turn, with two subscriptions and a webhook."""
    task = await task_of(once, message('tck-multi-turn'))
    same('turn 1: asks', task.status.state, a2a.TASK_STATE_INPUT_REQUIRED)
    same('turn 1: the question', texts(task.status.message.parts), ['More input is needed.'])

    hook = a2a.TaskPushNotificationConfig(
        task_id=task.id,
        id='mine',
        url=world.webhook.url,
        token='a token',
        authentication=a2a.AuthenticationInfo(scheme='Bearer', credentials='of-the-webhook'),
    )
    made = await once.create_task_push_notification_config(hook)
    same('push: created', (made.task_id, made.id, made.url), (task.id, 'mine', world.webhook.url))
    other = a2a.TaskPushNotificationConfig(task_id=task.id, url=f'{world.webhook.url}/other')
    other = await once.create_task_push_notification_config(other)
    holds('push: it gets an id when it has none', bool(other.id), other)
    found = await once.get_task_push_notification_config(
        a2a.GetTaskPushNotificationConfigRequest(task_id=task.id, id='mine')
    )
    same('push: get', found, made)
    listing = a2a.ListTaskPushNotificationConfigsRequest(task_id=task.id)
    listed = await once.list_task_push_notification_configs(listing)
    same('push: list', {config.id for config in listed.configs}, {'mine', other.id})
    gone = a2a.DeleteTaskPushNotificationConfigRequest(task_id=task.id, id=other.id)
    await once.delete_task_push_notification_config(gone)
    listed = await once.list_task_push_notification_configs(listing)
    same('push: deleted', [config.id for config in listed.configs], ['mine'])

    async def watch(joined):
        seen = []
        async for update in streaming.subscribe(a2a.SubscribeToTaskRequest(id=task.id)):
            seen.append(update)
            joined.set()
        return seen

    joined = [asyncio.Event(), asyncio.Event()]
    watchers = [asyncio.create_task(watch(event)) for event in joined]
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in joined)), LIMIT)

    more = await task_of(once, say('not yet', task))
    same('turn 2: asks again', (more.id, more.status.state), (task.id, a2a.TASK_STATE_INPUT_REQUIRED))
    done = await task_of(once, say('done', task))
    same('turn 3: completed', (done.id, done.status.state), (task.id, COMPLETED))
    spoken = [
        'hello',
        'More input is needed.',
        'not yet',
        'More input is needed.',
        'done',
    ]
    same('history: everything that was said', [texts(m.parts)[0] for m in done.history], spoken)
    for length, expected in ((0, []), (2, spoken[-2:]), (100, spoken)):
        found = await once.get_task(a2a.GetTaskRequest(id=task.id, history_length=length))
        same(f'history: at most {length}', [texts(m.parts)[0] for m in found.history], expected)

    one, two = await asyncio.wait_for(asyncio.gather(*watchers), LIMIT)
    holds('subscribe: the task as it is comes first', one[0].task.id == task.id, one)
    same('subscribe: ends with completed', one[-1].status_update.status.state, COMPLETED)
    same('subscribe: two see the same', one, two)
    states = [u.status_update.status.state for u in one[1:]]
    wanted = [WORKING, a2a.TASK_STATE_INPUT_REQUIRED, WORKING, COMPLETED]
    same('subscribe: every change', states, wanted)

    def ended(headers, body):
        update = body.get('statusUpdate', {'taskId': '', 'status': {'state': ''}})
        return update['taskId'] == task.id and update['status']['state'].endswith('COMPLETED')

    headers, body = await world.webhook.notification('push: received', ended)
    names = ('content-type', 'a2a-version', 'x-a2a-notification-token', 'authorization')
    expected = ['application/a2a+json', '1.0', 'a token', 'Bearer of-the-webhook']
    same('push: headers', [headers.get(name) for name in names], expected)
    told = json_format.ParseDict(body, a2a.StreamResponse())
    ending = told.status_update
    same('push: how it ended', (ending.task_id, texts(ending.status.message.parts)), (task.id, ['Hello from TCK']))

    inline = a2a.TaskPushNotificationConfig(url=f'{world.webhook.url}', token='inline')
    task = await task_of(once, message('tck-complete-task'), task_push_notification_config=inline)
    headers, _ = await world.webhook.notification('push: with the message', ended)
    same('push: with the message', headers['x-a2a-notification-token'], 'inline')


async def listing(once):
    context = f'context-{uuid4()}'
    sent = []
    for behaviour in ('tck-artifact-text', 'tck-complete-task', 'tck-input-required'):
        task = await task_of(once, message(behaviour, context_id=context))
        same('list: in the context of the caller', task.context_id, context)
        sent.insert(0, task.id)

    async def ask(**members):
        return await once.list_tasks(a2a.ListTasksRequest(context_id=context, **members))

    first = await ask(page_size=2)
    same('list: page 1, latest first', [task.id for task in first.tasks], sent[:2])
    same('list: sizes', (first.page_size, first.total_size), (2, 3))
    second = await ask(page_size=2, page_token=first.next_page_token)
    same('list: page 2', ([task.id for task in second.tasks], second.next_page_token), (sent[2:], ''))
    done = await ask(status=COMPLETED)
    same('list: by state', [task.id for task in done.tasks], sent[1:])
    holds('list: no artifacts unless asked for', not any(task.artifacts for task in done.tasks), done)
    done = await ask(status=COMPLETED, include_artifacts=True, history_length=0)
    same('list: with artifacts', [texts(task.artifacts[0].parts) for task in done.tasks if task.artifacts], [['Generated text content']])
    holds('list: without history', not any(task.history for task in done.tasks), done)
    now = datetime.now(timezone.utc)
    for after, expected in ((now - timedelta(hours=1), sent), (now + timedelta(hours=1), [])):
        since = Timestamp()
        since.FromDatetime(after)
        found = await ask(status_timestamp_after=since)
        same('list: by time', [task.id for task in found.tasks], expected)
    call = ask(page_token='none of ours')
    await refused('list: a wrong token', errors.InvalidParamsError, call)
    await once.cancel_task(a2a.CancelTaskRequest(id=sent[0]))


async def authorization(world, once):
    task = await task_of(once, message('tck-auth-required'))
    same('a permission is waited for', task.status.state, a2a.TASK_STATE_AUTH_REQUIRED)
    data = [json_format.MessageToDict(part.data) for part in task.status.message.parts if part.HasField('data')]
    watcher = once._transport.subscribe(a2a.SubscribeToTaskRequest(id=task.id), context=bearer())
    first = await anext(watcher)
    same('a permission: the stream stays open', first.task.status.state, a2a.TASK_STATE_AUTH_REQUIRED)
    decide(world.hub, data[0]['permission_request']['permission_request_id'])
    last = [update async for update in watcher][-1]
    same('a permission: the task goes on', last.status_update.status.state, COMPLETED)


def bearer():
    """For calls that bypass the client, which would add it."""
    return ClientCallContext(service_parameters={'Authorization': f'Bearer {KEY}'})


async def refusals(world, once, streaming, ended):
    get = a2a.GetTaskRequest(id='no-such-task')
    await refused('get what is not there', errors.TaskNotFoundError, once.get_task(get))
    stray = updates(once, message('x', task_id='no-such-task'))
    await refused('a message to a task that is not there', errors.TaskNotFoundError, stray)
    late = updates(once, say('more', ended))
    await refused('a message to a task that has ended', errors.UnsupportedOperationError, late)
    late = streaming.subscribe(a2a.SubscribeToTaskRequest(id=ended.id))
    await refused('subscribe to what has ended', errors.UnsupportedOperationError, late)
    config = a2a.GetTaskPushNotificationConfigRequest(task_id=ended.id, id='none')
    await refused('a push config that is not there', errors.TaskNotFoundError, once.get_task_push_notification_config(config))
    empty = a2a.Message(message_id=str(uuid4()), role=a2a.ROLE_USER)
    error = await refused('a message without parts', errors.InvalidParamsError, updates(once, empty))
    holds('a message without parts: names the member', 'parts' in error.message, error)
    stranger = await world.client(world.agent, streaming=False, key='ak_wrong')
    error = await refused('a wrong key', A2AClientError, stranger.get_task(a2a.GetTaskRequest(id=ended.id)))
    holds('a wrong key: says so', '401' in str(error) or 'UNAUTHENTICATED' in str(error), error)


async def others(world):
    plain = await world.client(f'{world.agent}-plain', streaming=True)
    task = await task_of(plain, message('x'), return_immediately=True)
    same('an agent that is offline: the task waits', task.status.state, SUBMITTED)
    hook = a2a.TaskPushNotificationConfig(task_id=task.id, url=world.webhook.url)
    call = plain.create_task_push_notification_config(hook)
    await refused('push where there is none', errors.PushNotificationNotSupportedError, call)
    call = plain._transport.subscribe(a2a.SubscribeToTaskRequest(id=task.id), context=bearer())
    await refused('a stream where there is none', errors.UnsupportedOperationError, call)
    await plain.cancel_task(a2a.CancelTaskRequest(id=task.id))

    strict = await world.client(f'{world.agent}-strict', streaming=False)
    call = updates(strict, message('x'), return_immediately=True)
    await refused('a required extension', errors.ExtensionSupportRequiredError, call)
    task = await task_of(strict, message('x'), asking(STRICT, EVENTS, 'https://example.com/unknown'), return_immediately=True)
    echoed = {uri.strip() for uri in world.headers.last.get('a2a-extensions', '').split(',')}
    same('extensions: those that were used are named', echoed, {STRICT, EVENTS})
    await strict.cancel_task(a2a.CancelTaskRequest(id=task.id), context=asking(STRICT))


async def main(hub, agent, binding):
    world = World(hub, agent, binding)
    once = await world.client(agent, streaming=False)
    streaming = await world.client(agent, streaming=True)
    await card(world, once)
    ended = await send_blocking(once)
    await cancel(once)
    await stream(streaming)
    await turns(world, once, streaming)
    await listing(once)
    await authorization(world, once)
    await refusals(world, once, streaming, ended)
    await others(world)
    await extended_card(once)
    print(f'done  a2a-sdk 1.0, {binding}')


asyncio.run(main(*sys.argv[1:]))
