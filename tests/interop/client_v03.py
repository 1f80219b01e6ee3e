"""Runs every operation of A2A 0.3 with a2a-sdk's own client of that version.

Run: ATTACHE_KEY=ak_… python client_v03.py HUB_URL AGENT jsonrpc|rest|grpc
Needs: a2a-sdk[grpc] (0.3.26); `attache adapter conformance` behind AGENT, which is also the hub's default agent, since
0.3 can't name one over gRPC; two agents without a device: AGENT-plain, without streaming or push, and AGENT-strict,
which requires the extension https://example.com/ext/strict/v1; and a hub that allows webhooks to this machine.
The client has no calls to list or delete push configs, so those use the SDK's own types.
Exit code 0: everything conforms to the standard.
"""

import asyncio
import sys

from uuid import uuid4

import grpc
import httpx

from a2a import types as a2a
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.grpc import a2a_pb2
from a2a.utils import proto_utils
from google.protobuf import json_format

from checks import EVENTS, KEY, LIMIT, RUNTIME, Webhook, decide, holds, refused, same


STRICT = 'https://example.com/ext/strict/v1'
BINDINGS = {'jsonrpc': 'JSONRPC', 'rest': 'HTTP+JSON', 'grpc': 'GRPC'}
State = a2a.TaskState


class Wire:
    """Adds the key and the agent to requests, and records the headers of the last response, which the SDK does not
    expose over gRPC."""

    def __init__(self, agent, key):
        self.out = [('authorization', f'Bearer {key}'), ('x-attache-agent', agent)]
        self.last = {}

    async def of_http(self, response):
        self.last = dict(response.headers)

    def interceptors(self):
        wire = self

        class Once(grpc.aio.UnaryUnaryClientInterceptor):
            async def intercept_unary_unary(self, continuation, details, request):
                call = await continuation(wire.told(details), request)
                wire.last = dict(await call.initial_metadata())
                return call

        class Stream(grpc.aio.UnaryStreamClientInterceptor):
            async def intercept_unary_stream(self, continuation, details, request):
                return await continuation(wire.told(details), request)

        return [Once(), Stream()]

    def told(self, details):
        return details._replace(metadata=[*(details.metadata or ()), *self.out])


class World:
    def __init__(self, hub, agent, binding):
        self.hub, self.agent, self.binding = hub, agent, BINDINGS[binding]
        self.webhook = Webhook()

    async def client(self, agent, streaming, key=KEY, push=()):
        """Creates a client from the agent's card, given only the agent's base URL."""
        wire = Wire(agent, key)
        http = httpx.AsyncClient(
            timeout=LIMIT,
            headers={'authorization': f'Bearer {key}'} if self.binding != 'GRPC' else {},
            event_hooks={'response': [wire.of_http]},
        )
        config = ClientConfig(
            streaming=streaming,
            httpx_client=http,
            grpc_channel_factory=lambda url: grpc.aio.insecure_channel(url, interceptors=wire.interceptors()),
            supported_transports=[self.binding],
            push_notification_configs=list(push),
        )
        # A key must be valid even where none is needed, so fetch the card without one.
        async with httpx.AsyncClient() as open_to_all:
            # Over gRPC, 0.3 reaches every agent at the default agent's address; the metadata names the agent.
            found = self.agent if self.binding == 'GRPC' else agent
            card = await A2ACardResolver(open_to_all, f'{self.hub}/a2a/{found}').get_agent_card()
        client = ClientFactory(config).create(card)
        client.wire, client.http, client.card = wire, http, card
        return client


def message(behaviour, *parts, **members):
    parts = [a2a.Part(root=part) for part in parts or (a2a.TextPart(text='hello'),)]
    return a2a.Message(message_id=f'{behaviour}-{uuid4()}', role=a2a.Role.user, parts=parts, **members)


def say(text, task):
    return message('say', a2a.TextPart(text=text), task_id=task.id)


async def answers(client, sent, extensions=None, **configuration):
    """Sends a message and returns all responses."""
    configuration = a2a.MessageSendConfiguration(**configuration)
    return [answer async for answer in client.send_message(sent, configuration=configuration, extensions=extensions)]


async def task_of(client, sent, extensions=None, **configuration):
    """Sends a message that has a single response and returns its task."""
    [answer] = await answers(client, sent, extensions, **configuration)
    holds('answered with a task', isinstance(answer, tuple) and isinstance(answer[0], a2a.Task), answer)
    return answer[0]


def texts(parts):
    return [part.root.text for part in parts]


async def refused_with(world, what, codes, call):
    """Checks a refusal in each binding: the JSON-RPC code, the HTTP status, the gRPC status."""
    rpc, http, grpc_code = codes
    if world.binding == 'JSONRPC':
        error = await refused(what, A2AClientJSONRPCError, call)
        same(f'{what}: code', error.error.code, rpc)
    elif world.binding == 'GRPC':
        error = await refused(what, grpc.aio.AioRpcError, call)
        same(f'{what}: status', error.code().name, grpc_code)
    else:
        error = await refused(what, A2AClientHTTPError, call)
        same(f'{what}: status', error.status_code, http)


NOT_FOUND = (-32001, 404, 'NOT_FOUND')
NOT_CANCELABLE = (-32002, 400, 'FAILED_PRECONDITION')
NO_PUSH = (-32003, 400, 'FAILED_PRECONDITION')
UNSUPPORTED = (-32004, 400, 'FAILED_PRECONDITION')
INVALID = (-32602, 400, 'INVALID_ARGUMENT')
EXTENSION = (-32008, 400, 'FAILED_PRECONDITION')


async def card(world, once):
    found = once.card
    same('card: name and version', (found.name, found.protocol_version), (world.agent, '0.3.0'))
    transports = {found.preferred_transport, *(place.transport for place in found.additional_interfaces)}
    same('card: the bindings', transports, {'JSONRPC', 'HTTP+JSON', 'GRPC'})
    able = found.capabilities
    same('card: capabilities', (able.streaming, able.push_notifications), (True, True))
    same('card: there is an extended one', found.supports_authenticated_extended_card, True)
    holds('card: our extension', EVENTS in [extension.uri for extension in able.extensions], able)
    holds('card: skills', len(found.skills) > 0 and all(skill.tags for skill in found.skills), found.skills)


async def extended_card(once):
    found = await once.get_card()
    params = {extension.uri: extension.params for extension in found.capabilities.extensions}
    same('extended card: where the agent is', params.get(RUNTIME, {}).get('online'), True)


async def send_blocking(once):
    sent = message(
        'tck-artifact-data',
        a2a.TextPart(text='grüß 😀\n'),
        a2a.FilePart(file=a2a.FileWithBytes(bytes='AP8=', mime_type='application/octet-stream', name='a.bin')),
        a2a.FilePart(file=a2a.FileWithUri(uri='https://example.com/x', mime_type='text/html', name='x.html')),
        a2a.DataPart(data={'n': [1, 2.5, None, {'deep': True}], '': 'empty name'}),
        metadata={'mine': {'list': [1, 'two']}},
    )
    task = await task_of(once, sent, blocking=True)
    same('blocking: completed', task.status.state, State.completed)
    expected = sent.model_copy(update={'task_id': task.id, 'context_id': task.context_id})
    same('blocking: the message comes back as it was sent', task.history[0], expected)
    [artifact] = task.artifacts
    same('artifact of data', artifact.parts[0].root.data, {'key': 'value', 'count': 42})

    text = await task_of(once, message('tck-artifact-text'), blocking=True)
    same('artifact of text', texts(text.artifacts[0].parts), ['Generated text content'])
    file = (await task_of(once, message('tck-artifact-file'), blocking=True)).artifacts[0].parts[0].root.file
    same('artifact of a file', (file.bytes, file.name, file.mime_type), ('dGNr', 'output.txt', 'text/plain'))
    link = (await task_of(once, message('tck-artifact-file-url'), blocking=True)).artifacts[0].parts[0].root.file
    same('artifact of a link', (link.uri, link.name), ('https://example.com/output.txt', 'output.txt'))

    greeted = await task_of(once, message('tck-complete-task'), blocking=True)
    same('status message', texts(greeted.status.message.parts), ['Hello from TCK'])
    same('status message: by the agent', greeted.status.message.role, a2a.Role.agent)
    [answer] = await answers(once, message('tck-message-response'), blocking=True)
    same('answered with a message', texts(answer.parts), ['Direct message response'])
    rejected = await task_of(once, message('tck-reject-task'), blocking=True)
    same('rejected', rejected.status.state, State.rejected)
    failed = await task_of(once, message('tck-task-failure'), blocking=True)
    same('failed', failed.status.state, State.failed)
    again = message('tck-complete-task')
    first, second = await task_of(once, again, blocking=True), await task_of(once, again, blocking=True)
    same('the same message again is the same task', second.id, first.id)
    return greeted


async def cancel(world, once):
    task = await task_of(once, message('tck-cancel'), blocking=False)
    holds('at once: it has not ended', task.status.state in (State.submitted, State.working), task)
    cancelled = await once.cancel_task(a2a.TaskIdParams(id=task.id))
    same('cancel', (cancelled.id, cancelled.status.state), (task.id, State.canceled))
    found = await once.get_task(a2a.TaskQueryParams(id=task.id))
    same('get: cancelled', found.status.state, State.canceled)
    call = once.cancel_task(a2a.TaskIdParams(id=task.id))
    await refused_with(world, 'cancel what has ended', NOT_CANCELABLE, call)


async def stream(streaming):
    (task, nothing), *rest = await answers(streaming, message('tck-stream-chunked'))
    same('stream: the task comes first', nothing, None)
    same('stream: all of one task', {update.task_id for _, update in rest}, {task.id})
    status = [update for _, update in rest if isinstance(update, a2a.TaskStatusUpdateEvent)]
    same('stream: ends with completed', (status[-1].status.state, status[-1].final), (State.completed, True))
    same('stream: nothing else is the end', [update.final for update in status[:-1]], [False] * (len(status) - 1))
    pieces = [('chunk-1 ', False, False), ('chunk-1.5 ', True, False), ('chunk-2', True, True)]
    received = [
        (update.artifact.parts[0].root.text, bool(update.append), bool(update.last_chunk))
        for _, update in rest
        if isinstance(update, a2a.TaskArtifactUpdateEvent)
    ]
    same('stream: the artifact, piece by piece', received, pieces[len(pieces) - len(received) :])
    whole = await streaming.get_task(a2a.TaskQueryParams(id=task.id))
    same('stream: the whole artifact afterwards', ''.join(texts(whole.artifacts[0].parts)), 'chunk-1 chunk-1.5 chunk-2')
    numbers = [update.metadata[EVENTS]['generation'] for update in status]
    holds('stream: numbered in order', numbers == sorted(set(numbers)), numbers)


async def list_configs(client, task):
    """The ids of a task's push configs, using the SDK's types."""
    transport = client._transport
    if hasattr(transport, 'stub'):
        request = a2a_pb2.ListTaskPushNotificationConfigRequest(parent=f'tasks/{task.id}')
        found = await transport.stub.ListTaskPushNotificationConfig(request)
        return [proto_utils.FromProto.task_push_notification_config(c).push_notification_config.id for c in found.configs]
    if 'rest' in type(transport).__module__:
        answer = await client.http.get(f'{transport.url}/v1/tasks/{task.id}/pushNotificationConfigs')
        found = json_format.ParseDict(answer.json(), a2a_pb2.ListTaskPushNotificationConfigResponse())
        return [proto_utils.FromProto.task_push_notification_config(c).push_notification_config.id for c in found.configs]
    request = a2a.ListTaskPushNotificationConfigRequest(
        id=1, params=a2a.ListTaskPushNotificationConfigParams(id=task.id)
    )
    answer = await client.http.post(transport.url, json=request.model_dump(mode='json', by_alias=True))
    found = a2a.ListTaskPushNotificationConfigSuccessResponse.model_validate(answer.json())
    return [config.push_notification_config.id for config in found.result]


async def delete_config(client, task, config):
    transport = client._transport
    name = f'tasks/{task.id}/pushNotificationConfigs/{config}'
    if hasattr(transport, 'stub'):
        await transport.stub.DeleteTaskPushNotificationConfig(
            a2a_pb2.DeleteTaskPushNotificationConfigRequest(name=name)
        )
    elif 'rest' in type(transport).__module__:
        answer = await client.http.delete(f'{transport.url}/v1/{name}')
        holds('push: delete is answered', answer.is_success, answer.text)
    else:
        params = a2a.DeleteTaskPushNotificationConfigParams(id=task.id, push_notification_config_id=config)
        request = a2a.DeleteTaskPushNotificationConfigRequest(id=1, params=params)
        answer = await client.http.post(transport.url, json=request.model_dump(mode='json', by_alias=True))
        a2a.DeleteTaskPushNotificationConfigSuccessResponse.model_validate(answer.json())


async def turns(world, once, streaming):
    """Multi-turn, with two subscriptions and a webhook."""
    task = await task_of(once, message('tck-multi-turn'), blocking=True)
    same('turn 1: asks', task.status.state, State.input_required)
    same('turn 1: the question', texts(task.status.message.parts), ['More input is needed.'])

    def hook(**members):
        return a2a.TaskPushNotificationConfig(
            task_id=task.id, push_notification_config=a2a.PushNotificationConfig(**members)
        )

    authentication = a2a.PushNotificationAuthenticationInfo(schemes=['Bearer'], credentials='of-the-webhook')
    made = await once.set_task_callback(
        hook(id='mine', url=world.webhook.url, token='a token', authentication=authentication)
    )
    config = made.push_notification_config
    same('push: created', (made.task_id, config.id, config.url), (task.id, 'mine', world.webhook.url))
    await once.set_task_callback(hook(id='other', url=f'{world.webhook.url}/other'))
    found = await once.get_task_callback(
        a2a.GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id='mine')
    )
    same('push: get', found, made)
    same('push: list', sorted(await list_configs(once, task)), ['mine', 'other'])
    await delete_config(once, task, 'other')
    same('push: deleted', await list_configs(once, task), ['mine'])

    async def watch(joined):
        seen = []
        async for found, update in streaming.resubscribe(a2a.TaskIdParams(id=task.id)):
            seen.append(update or found.id)
            joined.set()
        return seen

    joined = [asyncio.Event(), asyncio.Event()]
    watchers = [asyncio.create_task(watch(event)) for event in joined]
    await asyncio.wait_for(asyncio.gather(*(event.wait() for event in joined)), LIMIT)
    done = await task_of(once, say('done', task), blocking=True)
    same('turn 2: completed', (done.id, done.status.state), (task.id, State.completed))
    spoken = ['hello', 'More input is needed.', 'done']
    same('history: everything that was said', [texts(m.parts)[0] for m in done.history], spoken)
    for length, expected in ((2, spoken[-2:]), (100, spoken)):
        found = await once.get_task(a2a.TaskQueryParams(id=task.id, history_length=length))
        same(f'history: at most {length}', [texts(m.parts)[0] for m in found.history], expected)

    one, two = await asyncio.wait_for(asyncio.gather(*watchers), LIMIT)
    same('resubscribe: the task as it is comes first', one[0], task.id)
    same('resubscribe: every change', [u.status.state for u in one[1:]], [State.working, State.completed])
    same('resubscribe: only the last is the end', [u.final for u in one[1:]], [False, True])
    same('resubscribe: two see the same', one, two)

    def ended(headers, body):
        return body.get('id') == task.id and body['status']['state'] == 'completed'

    headers, body = await world.webhook.notification('push: received', ended)
    names = ('content-type', 'x-a2a-notification-token', 'authorization')
    expected = ['application/json', 'a token', 'Bearer of-the-webhook']
    same('push: headers', [headers.get(name) for name in names], expected)
    told = a2a.Task.model_validate(body)
    same('push: the task', (told.id, texts(told.status.message.parts)), (task.id, ['Hello from TCK']))

    inline = a2a.PushNotificationConfig(url=world.webhook.url, token='inline')
    pushed = await world.client(world.agent, streaming=False, push=[inline])
    task = await task_of(pushed, message('tck-complete-task'), blocking=True)
    headers, _ = await world.webhook.notification('push: with the message', ended)
    same('push: with the message', headers['x-a2a-notification-token'], 'inline')


async def authorization(world, once, streaming):
    task = await task_of(once, message('tck-auth-required'), blocking=True)
    same('a permission is waited for', task.status.state, State.auth_required)
    data = [part.root.data for part in task.status.message.parts if isinstance(part.root, a2a.DataPart)]
    watcher = streaming.resubscribe(a2a.TaskIdParams(id=task.id))
    first, _ = await anext(watcher)
    same('a permission: the task as it is', first.status.state, State.auth_required)
    decide(world.hub, data[0]['permission_request']['permission_request_id'])
    last = [update async for _, update in watcher][-1]
    same('a permission: the task goes on', (last.status.state, last.final), (State.completed, True))


async def refusals(world, once, streaming, ended):
    missing = a2a.TaskQueryParams(id='no-such-task')
    await refused_with(world, 'get what is not there', NOT_FOUND, once.get_task(missing))
    stray = answers(once, message('x', task_id='no-such-task'))
    await refused_with(world, 'a message to a task that is not there', NOT_FOUND, stray)
    await refused_with(world, 'a message to a task that has ended', UNSUPPORTED, answers(once, say('more', ended)))
    late = streaming.resubscribe(a2a.TaskIdParams(id=ended.id))
    await refused_with(world, 'resubscribe to what has ended', UNSUPPORTED, late)
    config = a2a.GetTaskPushNotificationConfigParams(id=ended.id, push_notification_config_id='none')
    await refused_with(world, 'a push config that is not there', NOT_FOUND, once.get_task_callback(config))
    empty = a2a.Message(message_id=str(uuid4()), role=a2a.Role.user, parts=[])
    await refused_with(world, 'a message without parts', INVALID, answers(once, empty))
    stranger = await world.client(world.agent, streaming=False, key='ak_wrong')
    kind = grpc.aio.AioRpcError if world.binding == 'GRPC' else A2AClientHTTPError
    error = await refused('a wrong key', kind, stranger.get_task(a2a.TaskQueryParams(id=ended.id)))
    holds('a wrong key: says so', '401' in str(error) or 'UNAUTHENTICATED' in str(error), error)


async def others(world):
    # Over gRPC, this is the card of the default agent, which supports streaming.
    plain = await world.client(f'{world.agent}-plain', streaming=world.binding != 'GRPC')
    task = await task_of(plain, message('x'), blocking=False)
    same('an agent that is offline: the task waits', task.status.state, State.submitted)
    config = a2a.PushNotificationConfig(id='x', url=world.webhook.url)
    call = plain.set_task_callback(a2a.TaskPushNotificationConfig(task_id=task.id, push_notification_config=config))
    await refused_with(world, 'push where there is none', NO_PUSH, call)
    await plain.cancel_task(a2a.TaskIdParams(id=task.id))

    strict = await world.client(f'{world.agent}-strict', streaming=False)
    call = answers(strict, message('x'), blocking=False)
    await refused_with(world, 'a required extension', EXTENSION, call)
    task = await task_of(strict, message('x'), [STRICT, EVENTS, 'https://example.com/unknown'], blocking=False)
    names = ('a2a-extensions',) if world.binding == 'GRPC' else ('a2a-extensions', 'x-a2a-extensions')
    for name in names:
        echoed = {uri.strip() for uri in strict.wire.last.get(name, '').split(',')}
        same(f'extensions: those that were used are named in {name}', echoed, {STRICT, EVENTS})
    await strict.cancel_task(a2a.TaskIdParams(id=task.id), extensions=[STRICT])


async def main(hub, agent, binding):
    world = World(hub, agent, binding)
    once = await world.client(agent, streaming=False)
    streaming = await world.client(agent, streaming=True)
    await card(world, once)
    ended = await send_blocking(once)
    await cancel(world, once)
    await stream(streaming)
    await turns(world, once, streaming)
    await authorization(world, once, streaming)
    await refusals(world, once, streaming, ended)
    await others(world)
    await extended_card(once)
    print(f'done  a2a-sdk 0.3, {binding}')


asyncio.run(main(*sys.argv[1:]))
