#!/usr/bin/env python3
"""A complete adapter in Python's standard library: only GET /health and POST /run-task.

Run:   python3 examples/python-adapter/adapter.py 7900
See:   listening on http://127.0.0.1:7900
Try:   curl http://127.0.0.1:7900/health                                              -> {"ok": true, ...}
Pair:  attache runtime pair CODE --api-base URL --local-agent-endpoint http://127.0.0.1:7900
Then:  attache runtime start, and in another terminal: attache ask AGENT "one two three"   -> 3 words
"""
import json, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def answer(text):  # Your agent goes here. An exception becomes the failure message.
    if not text.strip():
        raise ValueError("the task has no text")
    return f"{len(text.split())} words"

busy = threading.Lock()  # one task at a time

class Adapter(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/health":
            return self.reply(404, {"error": {"code": "no_such_path", "message": "try /health", "hint": ""}})
        self.reply(200, {"ok": True, "host": {"type": "custom", "version": "1"}})

    def do_POST(self):
        # Checking host and content type keeps web pages out: a browser can reach 127.0.0.1 too.
        host, kind = self.headers.get("host", "").split(":")[0], self.headers.get("content-type", "")
        if self.path != "/run-task" or host not in ("127.0.0.1", "localhost") or kind != "application/json":
            return self.reply(400, {"error": {"code": "invalid_request", "message": "POST JSON to /run-task", "hint": ""}})
        if not busy.acquire(blocking=False):
            return self.reply(409, {"error": {"code": "busy", "message": "one task at a time", "hint": "try later"}})
        try:
            task = json.loads(self.rfile.read(int(self.headers["content-length"])))
            text = answer(task["input"].get("text", ""))
            reply = {"success": True, "output": {"text": text, "artifact_refs": []}}
        except Exception as error:
            reply = {"success": False, "error": {"code": "task_failed", "message": str(error)}}
        finally:
            busy.release()
        self.reply(200, reply)

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 7900), Adapter)
print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
