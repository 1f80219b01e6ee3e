"""A model on loopback that speaks Anthropic's Messages API and follows a script: first the tool call, then the result as text."""
from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ScriptedModel:
    def __init__(self, tool: str, arguments: dict[str, Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            do_GET = do_HEAD

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
                if "count_tokens" in self.path:
                    return self.reply("application/json", json.dumps({"input_tokens": 1}))
                script.requests.append(body)
                offered = any(one.get("name") == tool for one in body.get("tools", []))
                block: dict[str, Any]
                results = [block for block in _blocks(body) if block.get("type") == "tool_result"]
                if results:
                    block = {"type": "text", "text": f"The agent said: {_text(results[-1])}"}
                elif offered:
                    block = {"type": "tool_use", "id": "toolu_1", "name": tool, "input": arguments}
                else:
                    block = {"type": "text", "text": "No tool."}
                if body.get("stream"):
                    self.reply("text/event-stream", "".join(_events(block)))
                else:
                    self.reply("application/json", json.dumps({**_message(), "content": [block], "stop_reason": _stop(block)}))

            def reply(self, kind: str, text: str) -> None:
                data = text.encode()
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()


def _blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in body.get("messages", []):
        if isinstance(message["content"], list):
            yield from message["content"]


def _text(result: dict[str, Any]) -> str:
    """The first line: a host may add reminders of its own below it."""
    content = result.get("content")
    text = content if isinstance(content, str) else " ".join(part.get("text", "") for part in content or [])
    return text.partition("\n")[0]


def _stop(block: dict[str, Any]) -> str:
    return "tool_use" if block["type"] == "tool_use" else "end_turn"


def _message() -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": [], "stop_reason": None, "usage": usage}


def _events(block: dict[str, Any]) -> Iterator[str]:
    if block["type"] == "tool_use":
        start, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": _message()},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": _stop(block), "stop_sequence": None}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    for event in events:
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
