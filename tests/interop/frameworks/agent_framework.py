"""agent-framework (Microsoft): `A2AAgent` with the card as served. Arguments: HUB AGENT; the key is in ATTACHE_KEY."""

import sys

from pathlib import Path

sys.path = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent.resolve()]
sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncio

import httpx

from a2a.client import A2ACardResolver
from agent_framework_a2a import A2AAgent
from checks import KEY, LIMIT, holds, same


async def main(hub, agent):
    http = httpx.AsyncClient(headers={'Authorization': f'Bearer {KEY}'}, timeout=LIMIT)
    card = await A2ACardResolver(http, f'{hub}/a2a/{agent}').get_agent_card()
    remote = A2AAgent(agent_card=card, http_client=http)
    session = remote.create_session()
    answer = await remote.run('tck-artifact-text', session=session)
    same('send, artifacts', answer.text, 'Generated text content')
    pieces = [update.text async for update in remote.run('tck-stream-chunked', stream=True) if update.text]
    same('stream', pieces, ['chunk-1 ', 'chunk-1.5 ', 'chunk-2'])
    session = remote.create_session()
    asked = await remote.run('tck-multi-turn', session=session)
    same('asks', asked.text, 'More input is needed.')
    waits = session.service_session_id
    holds('its task waits', waits and waits['task_id'], waits)
    await remote.run('done', session=session)
    ended = session.service_session_id
    same('resume', (ended['context_id'], ended['task_id']), (waits['context_id'], waits['task_id']))
    holds('its task is over', 'COMPLETED' in str(ended['task_state']).upper() or ended['task_state'] == 3, ended)
    print('done agent-framework')


asyncio.run(main(*sys.argv[1:3]))
