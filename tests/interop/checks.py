"""What the clients in Python share: one line per check, a webhook that keeps what it is sent, and the hub's own API."""

import asyncio
import json
import os
import sys
import threading
import urllib.request

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


KEY = os.environ.get('ATTACHE_KEY', '')
# How long anything may take before the client gives up.
LIMIT = 60
EVENTS = 'https://attache.dev/ext/events/v1'
RUNTIME = 'https://attache.dev/ext/runtime/v1'


def same(what, came, expected):
    """Ends the program when something else came than was expected."""
    if came != expected:
        sys.exit(f'WRONG {what}\n  expected: {expected!r}\n  came:     {came!r}')
    print(f'ok    {what}', flush=True)


def holds(what, is_so, came):
    """The same where only a property is known."""
    if not is_so:
        sys.exit(f'WRONG {what}\n  came: {came!r}')
    print(f'ok    {what}', flush=True)


async def refused(what, kind, call):
    """The error of a kind that a call must end with. `call`: something to await, or a stream."""
    try:
        if hasattr(call, '__aiter__'):
            came = [item async for item in call]
        else:
            came = await call
    except kind as error:
        print(f'ok    {what}: {type(error).__name__}', flush=True)
        return error
    except Exception as error:  # noqa: BLE001 (whatever it is, it is not what was expected)
        sys.exit(f'WRONG {what}\n  expected: {kind}\n  came:     {error!r}')
    sys.exit(f'WRONG {what}\n  expected: {kind}\n  came:     {came!r}')


def decide(hub, permission):
    """A person allows what was asked for, over the hub's own API."""
    request = urllib.request.Request(
        f'{hub}/api/v1/permission-requests/{permission}/decision',
        data=json.dumps({'approved': True}).encode(),
        headers={'authorization': f'Bearer {KEY}', 'content-type': 'application/json'},
    )
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        return json.load(answer)


class Webhook:
    """Receives push notifications on a free port of this machine."""

    def __init__(self):
        letters, arrived = [], threading.Condition()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers['content-length']))
                with arrived:
                    letters.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
                    arrived.notify_all()
                self.send_response(200)
                self.send_header('content-length', '0')
                self.end_headers()

            def log_message(self, *_):
                pass

        self._letters, self._arrived = letters, arrived
        self._server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self._server.server_port}/hook'
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    async def letter(self, what, wanted):
        """The first letter that is wanted, as (headers, body)."""
        return await asyncio.to_thread(self._letter, what, wanted)

    def _letter(self, what, wanted):
        def find():
            return next((letter for letter in self._letters if wanted(*letter)), None)

        with self._arrived:
            if not self._arrived.wait_for(find, LIMIT):
                sys.exit(f'WRONG {what}\n  waited {LIMIT} s for a notification\n  came: {self._letters!r}')
            return find()
