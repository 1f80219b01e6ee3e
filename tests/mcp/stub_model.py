#!/usr/bin/env python3
"""A model that does as it is told, for checking MCP clients without one: speaks Anthropic's Messages API on loopback.

    stub_model.py PORT_FILE LOG_FILE

A prompt that contains `CALL <tool> <json>` is answered with a call of that tool; once there is a result of a tool, with a
text. What the tool answered goes to LOG_FILE, one JSON object per line, and so do the names of the tools on offer.
"""
import json
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT_FILE, LOG_FILE = sys.argv[1:]
LOG = open(LOG_FILE, "a", buffering=1, encoding="utf-8")
USAGE = {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}


def log(**what):
    LOG.write(json.dumps(what) + "\n")


def blocks(messages, role, kind):
    """The blocks of one kind in all messages of a role; plain text counts as a block."""
    for message in messages:
        if message.get("role") == role:
            content = message.get("content")
            content = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
            yield from (block for block in content if block.get("type") == kind)


def answer(request):
    """The one block that is said next, and why it is the last."""
    messages = request.get("messages", [])
    # Clients append messages of their own after a result, so any result counts, not only a last one.
    results = list(blocks(messages, "user", "tool_result"))
    if results:
        log(result=results[-1].get("content"), is_error=bool(results[-1].get("is_error")))
        return {"type": "text", "text": "The tool has answered."}, "end_turn"
    prompt = "\n".join(block["text"] for block in blocks(messages, "user", "text"))
    wanted = re.search(r"CALL (\w+) (\{.*\})", prompt)
    tools = [tool.get("name") for tool in request.get("tools") or []]
    if wanted:
        # It may not be among them: clients keep the descriptions of many tools back and take calls of them all the same.
        log(tools=tools)
        arguments = json.loads(wanted[2])
        return {"type": "tool_use", "id": "toolu_1", "name": wanted[1], "input": arguments}, "tool_use"
    return {"type": "text", "text": "Nothing to do."}, "end_turn"


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_HEAD(self):
        self.send({})

    def do_GET(self):
        self.send({"data": [], "has_more": False})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        if self.path.split("?")[0].endswith("/count_tokens"):
            return self.send({"input_tokens": 1})
        block, reason = answer(request)
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request.get("model"), "usage": USAGE}
        if not request.get("stream"):
            return self.send({**message, "content": [block], "stop_reason": reason, "stop_sequence": None})
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        if block["type"] == "text":
            start, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        for event in (
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "stop_sequence": None}},
            {"type": "content_block_start", "index": 0, "content_block": start},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
with open(PORT_FILE, "w", encoding="utf-8") as file:
    file.write(str(server.server_address[1]))
server.serve_forever()
