"""A google-adk server with an agent that echoes its input. Argument: a port; prints its URL when it listens."""

import sys
import warnings

warnings.simplefilter('ignore')

import uvicorn

from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import BaseAgent
from google.adk.events import Event
from google.genai import types


class Echo(BaseAgent):
    async def _run_async_impl(self, ctx):
        said = ' '.join(part.text for part in ctx.user_content.parts if part.text)
        content = types.Content(role='model', parts=[types.Part(text=f'you said: {said}')])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content)


port = int(sys.argv[1])
app = to_a2a(Echo(name='echo', description='Repeats'), host='127.0.0.1', port=port)
print(f'http://127.0.0.1:{port}', flush=True)
uvicorn.run(app, host='127.0.0.1', port=port, log_level='warning')
