"""a2a-sdk 0.2: the client of the first releases, over JSON-RPC. Arguments: HUB AGENT; the key is in ATTACHE_KEY."""

import sys

from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncio
import uuid

import httpx

from a2a.client import A2ACardResolver, A2AClient
from a2a.types import Message, MessageSendParams, Part, Role, SendMessageRequest, SendStreamingMessageRequest, TextPart
from checks import KEY, LIMIT, same


async def main(hub, agent):
    http = httpx.AsyncClient(headers={'Authorization': f'Bearer {KEY}'}, timeout=LIMIT)
    card = await A2ACardResolver(http, f'{hub}/a2a/{agent}').get_agent_card()
    client = A2AClient(http, agent_card=card)

    def params(text, task=None):
        message = Message(
            messageId=f'{text}-{uuid.uuid4()}',
            role=Role.user,
            parts=[Part(root=TextPart(text=text))],
            taskId=task and task.id,
            contextId=task and task.contextId,
        )
        return MessageSendParams(message=message)

    async def say(text, task=None):
        answer = await client.send_message(SendMessageRequest(id='1', params=params(text, task)))
        return answer.root.result

    task = await say('tck-complete-task')
    same('send', (task.status.state.value, task.status.message.parts[0].root.text), ('completed', 'Hello from TCK'))
    task = await say('tck-artifact-text')
    same('artifacts', task.artifacts[0].parts[0].root.text, 'Generated text content')
    pieces = []
    request = SendStreamingMessageRequest(id='2', params=params('tck-stream-chunked'))
    async for event in client.send_message_streaming(request):
        event = event.root.result
        if event.kind == 'artifact-update':
            pieces.append(event.artifact.parts[0].root.text)
        last = event
    same('stream', pieces, ['chunk-1 ', 'chunk-1.5 ', 'chunk-2'])
    same('stream ends', (last.status.state.value, last.final), ('completed', True))
    asked = await say('tck-multi-turn')
    same('asks', asked.status.state.value, 'input-required')
    ended = await say('done', asked)
    same('resume', (ended.id, ended.status.state.value), (asked.id, 'completed'))
    print('done a2a-sdk 0.2')


asyncio.run(main(*sys.argv[1:3]))
