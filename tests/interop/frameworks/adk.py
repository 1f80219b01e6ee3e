"""google-adk: `RemoteA2aAgent`, which finds the agent by the URL of its card. It only accepts cards without gRPC, so the
agent lists its bindings. Arguments: HUB AGENT; the key is in ATTACHE_KEY."""

import sys

from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncio
import warnings

import httpx

from checks import KEY, LIMIT, same

warnings.simplefilter('ignore')

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent  # noqa: E402
from google.adk.runners import Runner  # noqa: E402
from google.adk.sessions import InMemorySessionService  # noqa: E402
from google.genai import types  # noqa: E402


async def main(hub, agent):
    http = httpx.AsyncClient(headers={'Authorization': f'Bearer {KEY}'}, timeout=LIMIT)
    card = f'{hub}/a2a/{agent}/.well-known/agent-card.json'
    remote = RemoteA2aAgent(name='remote', agent_card=card, httpx_client=http)
    sessions = InMemorySessionService()
    runner = Runner(app_name='interop', agent=remote, session_service=sessions)
    session = await sessions.create_session(app_name='interop', user_id='somebody')

    async def say(text):
        """Returns the received texts, and whether the agent asked a question."""
        message = types.Content(role='user', parts=[types.Part(text=text)])
        texts, asked = [], False
        async for event in runner.run_async(user_id='somebody', session_id=session.id, new_message=message):
            if event.error_message:
                sys.exit(f'WRONG {text}: {event.error_message}')
            parts = event.content.parts if event.content and event.content.parts else []
            texts += [part.text for part in parts if part.text]
            asked = asked or bool(event.long_running_tool_ids)
        return texts, asked

    same('send', await say('tck-complete-task'), (['Hello from TCK'], False))
    same('artifacts', await say('tck-artifact-text'), (['Generated text content'], False))
    same('stream', await say('tck-stream-chunked'), (['chunk-1 ', 'chunk-1.5 ', 'chunk-2'], False))
    _, asked = await say('tck-multi-turn')
    same('asks', asked, True)
    texts, asked = await say('done')
    same('resume', (texts[-1:], asked), (['Hello from TCK'], False))
    print('done google-adk')


asyncio.run(main(*sys.argv[1:3]))
