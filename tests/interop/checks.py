"""Shared by the Python clients: checks that print one line each, a webhook that records notifications, and the hub's own API."""

import asyncio
import json
import os
import sys
import threading
import urllib.request

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


KEY = os.environ.get('ATTACHE_KEY', '')
# Timeout for every operation.
LIMIT = 60
EVENTS = 'https://attache.dev/ext/events/v1'
RUNTIME = 'https://attache.dev/ext/runtime/v1'


def same(what, actual, expected):
    """Exits if the actual value is not the expected one."""
    if actual != expected:
        sys.exit(f'WRONG {what}\n  expected: {expected!r}\n  actual:   {actual!r}')
    print(f'ok    {what}', flush=True)


def holds(what, is_so, actual):
    """Exits if the condition does not hold."""
    if not is_so:
        sys.exit(f'WRONG {what}\n  actual: {actual!r}')
    print(f'ok    {what}', flush=True)


async def refused(what, kind, call):
    """Returns the error that the call must raise. `call` is an awaitable or a stream."""
    try:
        if hasattr(call, '__aiter__'):
            actual = [item async for item in call]
        else:
            actual = await call
    except kind as error:
        print(f'ok    {what}: {type(error).__name__}', flush=True)
        return error
    except Exception as error:  # noqa: BLE001 (any other error is unexpected)
        sys.exit(f'WRONG {what}\n  expected: {kind}\n  actual:   {error!r}')
    sys.exit(f'WRONG {what}\n  expected: {kind}\n  actual:   {actual!r}')


def decide(hub, permission):
    """Approves a permission request as a person, over the hub's own API."""
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
        notifications, arrived = [], threading.Condition()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers['content-length']))
                with arrived:
                    notifications.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
                    arrived.notify_all()
                self.send_response(200)
                self.send_header('content-length', '0')
                self.end_headers()

            def log_message(self, *_):
                pass

        self._notifications, self._arrived = notifications, arrived
        self._server = ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.url = f'http://127.0.0.1:{self._server.server_port}/hook'
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    async def notification(self, what, wanted):
        """Waits for the first matching notification and returns it as (headers, body)."""
        return await asyncio.to_thread(self._notification, what, wanted)

    def _notification(self, what, wanted):
        def find():
            return next((notification for notification in self._notifications if wanted(*notification)), None)

        with self._arrived:
            if not self._arrived.wait_for(find, LIMIT):
                sys.exit(f'WRONG {what}\n  waited {LIMIT} s for a notification\n  actual: {self._notifications!r}')
            return find()
