"""A strands-agents server whose model echoes its input. Argument: a port; prints its URL when it listens."""

import sys

from pathlib import Path

sys.path = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent.resolve()]

import uvicorn

from strands import Agent
from strands.models import Model
from strands.multiagent.a2a import A2AServer


class Echo(Model):
    def update_config(self, **_):
        pass

    def get_config(self):
        return {}

    async def structured_output(self, *_, **__):
        yield {}

    async def stream(self, messages, *_, **__):
        said = ' '.join(block['text'] for block in messages[-1]['content'] if 'text' in block)
        yield {'messageStart': {'role': 'assistant'}}
        yield {'contentBlockStart': {'start': {}}}
        for word in ['you said: ', said]:
            yield {'contentBlockDelta': {'delta': {'text': word}}}
        yield {'contentBlockStop': {}}
        yield {'messageStop': {'stopReason': 'end_turn'}}


def make(_context=None):
    return Agent(model=Echo(), name='echo', description='Repeats', callback_handler=None)


port = int(sys.argv[1])
server = A2AServer(agent_factory=make, host='127.0.0.1', port=port, enable_a2a_compliant_streaming=True)
print(f'http://127.0.0.1:{port}', flush=True)
uvicorn.run(server.to_starlette_app(), host='127.0.0.1', port=port, log_level='warning')
