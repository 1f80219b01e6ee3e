"""strands-agents: `A2AAgent` by the agent's URL. It can't answer a question, so the underlying client continues
the task. Arguments: HUB AGENT; the key is in ATTACHE_KEY."""

import sys

from pathlib import Path

sys.path = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent.resolve()]
sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncio
import uuid

import httpx

from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, TaskState, TextPart
from checks import KEY, LIMIT, same
from strands.agent.a2a_agent import A2AAgent


def texts(result):
    return [part['text'] for part in result.message['content']]


async def main(hub, agent):
    http = httpx.AsyncClient(headers={'Authorization': f'Bearer {KEY}'}, timeout=LIMIT)
    config = ClientConfig(httpx_client=http, streaming=True)
    url = f'{hub}/a2a/{agent}'
    remote = A2AAgent(url, client_config=config)
    same('send', texts(await remote.invoke_async('tck-complete-task')), ['Hello from TCK'])
    same('artifacts', texts(await remote.invoke_async('tck-artifact-text')), ['Generated text content'])
    result, events = None, 0
    async for event in remote.stream_async('tck-stream-chunked'):
        events += 1
        result = event.get('result', result)
    same('stream', texts(result), ['chunk-1 ', 'chunk-1.5 ', 'chunk-2'])
    same('stream arrived in pieces', events > 3, True)
    asked = await remote.invoke_async('tck-multi-turn')
    same('asks', (asked.stop_reason, texts(asked)), ('interrupt', ['More input is needed.']))

    client = ClientFactory(config).create(await A2ACardResolver(http, url).get_agent_card())

    async def say(text, task=None):
        parts = [Part(root=TextPart(text=text))]
        message = Message(
            message_id=f'{text}-{uuid.uuid4()}',
            role=Role.user,
            parts=parts,
            task_id=task.id if task else None,
            context_id=task.context_id if task else None,
        )
        last = None
        async for event in client.send_message(message):
            last = event[0]
        return last

    task = await say('tck-multi-turn')
    same('waits', task.status.state, TaskState.input_required)
    ended = await say('done', task)
    same('resume', (ended.id, ended.status.state), (task.id, TaskState.completed))
    print('done strands')


asyncio.run(main(*sys.argv[1:3]))
