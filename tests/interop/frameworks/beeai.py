"""beeai-framework: `A2AAgent` by the agent's URL. Arguments: HUB AGENT; the key is in ATTACHE_KEY."""

import sys

from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncio

from beeai_framework.adapters.a2a.agents.agent import A2AAgent, A2AAgentParameters, HttpxAsyncClientParameters
from beeai_framework.memory import UnconstrainedMemory
from checks import KEY, holds, same


async def main(hub, agent):
    http = HttpxAsyncClientParameters(headers={'Authorization': f'Bearer {KEY}'})
    parameters = A2AAgentParameters(httpx_async_client=http)
    remote = A2AAgent(url=f'{hub}/a2a/{agent}', memory=UnconstrainedMemory(), parameters=parameters)

    async def say(text):
        kinds = []

        def seen(data, _):
            update = data.value[1] if isinstance(data.value, tuple) else data.value
            kinds.append(type(update).__name__)

        answer = await remote.run(text).on('update', seen)
        return answer.last_message.text, kinds

    same('send', (await say('tck-complete-task'))[0], 'Hello from TCK')
    same('artifacts', (await say('tck-artifact-text'))[0], 'Generated text content')
    text, kinds = await say('tck-stream-chunked')
    same('stream', text, 'chunk-1 chunk-1.5 chunk-2')
    holds('stream arrived in pieces', kinds.count('TaskArtifactUpdateEvent') == 3, kinds)
    same('asks', (await say('tck-multi-turn'))[0], 'More input is needed.')
    same('resume', (await say('done'))[0], 'Hello from TCK')
    print('done beeai')


asyncio.run(main(*sys.argv[1:3]))
