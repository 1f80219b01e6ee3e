"""A fasta2a server that echoes its input as an artifact. Argument: a port; prints its URL when it listens."""

import sys

from pathlib import Path

sys.path = [path for path in sys.path if Path(path).resolve() != Path(__file__).parent.resolve()]

import contextlib
import uuid

import uvicorn

from fasta2a import FastA2A, Worker
from fasta2a.broker import InMemoryBroker
from fasta2a.schema import Artifact, Message, Part
from fasta2a.storage import InMemoryStorage


class Echo(Worker):
    async def run_task(self, params):
        task = await self.storage.load_task(params['id'])
        await self.storage.update_task(task['id'], state='working')
        said = ' '.join(part['text'] for part in params['message']['parts'] if 'text' in part)
        artifact = Artifact(artifact_id=str(uuid.uuid4()), name='echo', parts=[Part(text=f'you said: {said}')])
        await self.storage.update_task(task['id'], state='completed', new_artifacts=[artifact])

    async def cancel_task(self, params):
        await self.storage.update_task(params['id'], state='canceled')

    def build_message_history(self, history: list[Message]):
        return history

    def build_artifacts(self, result):
        return []


port = int(sys.argv[1])
storage, broker = InMemoryStorage(), InMemoryBroker()


@contextlib.asynccontextmanager
async def lifespan(app):
    async with app.task_manager, Echo(storage=storage, broker=broker).run():
        yield


url = f'http://127.0.0.1:{port}'
app = FastA2A(storage=storage, broker=broker, url=url, name='echo', description='Repeats', lifespan=lifespan)
print(url, flush=True)
uvicorn.run(app, host='127.0.0.1', port=port, log_level='warning')
