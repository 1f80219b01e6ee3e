"""crewai: a delegation to an A2A agent the way its agents do it, by the URL of the card, streaming and polling. Arguments:
HUB AGENT; the key is in ATTACHE_KEY."""

import os
import sys

from pathlib import Path

sys.path = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent.resolve()]
sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ['CREWAI_DISABLE_TELEMETRY'] = os.environ['CREWAI_DISABLE_TRACKING'] = os.environ['OTEL_SDK_DISABLED'] = 'true'

import asyncio

from checks import KEY, LIMIT, same
from crewai.a2a.auth import BearerTokenAuth
from crewai.a2a.updates import PollingConfig, StreamingConfig
from crewai.a2a.utils.delegation import aexecute_a2a_delegation


async def main(hub, agent):
    for name, updates in [('streaming', StreamingConfig()), ('polling', PollingConfig(interval=0.2))]:

        async def say(text, before=None):
            result = await aexecute_a2a_delegation(
                endpoint=f'{hub}/a2a/{agent}/.well-known/agent-card.json',
                auth=BearerTokenAuth(token=KEY),
                timeout=LIMIT,
                task_description=text,
                task_id=before and before.task_id,
                context_id=before and before.context_id,
                updates=updates,
                turn_number=0,
            )
            return result['status'].value, result.get('result') or result.get('error'), result['history']

        same(f'{name}: send', (await say('tck-complete-task'))[:2], ('completed', 'Hello from TCK'))
        same(f'{name}: artifacts', (await say('tck-artifact-text'))[:2], ('completed', 'Generated text content'))
        status, text, _ = await say('tck-stream-chunked')
        same(f'{name}: stream', (status, text.split()), ('completed', ['chunk-1', 'chunk-1.5', 'chunk-2']))
        status, text, history = await say('tck-multi-turn')
        same(f'{name}: asks', (status, text), ('input-required', 'More input is needed.'))
        same(f'{name}: resume', (await say('done', history[-1]))[:2], ('completed', 'Hello from TCK'))
    print('\ndone crewai')


asyncio.run(main(*sys.argv[1:3]))
