#!/usr/bin/env python3
"""A complete sub-agent on a channel, written with Python's standard library and the `websockets` package only.

Needs: pip install websockets
Key:   curl -sX POST http://127.0.0.1:7800/api/a2a/register -H "authorization: Bearer $KEY" \
            -H content-type:application/json -d '{"agent_id":"counter"}'          -> {"api_key": "ak_...", ...}
Run:   AGENT_KEY=ak_... python3 examples/python-subagent/subagent.py ws://127.0.0.1:7800/api/envelope/ws
See:   connected as agt_...
Try:   attache ask counter "one two three"                    -> streams the words, then: 3 words
       attache ask counter "delete one two"                   -> waits until you approve it: attache approvals
"""
import json, os, sys, time, uuid
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect


class Refused(Exception):
    pass


class Channel:
    """One channel to the hub, which can span several connections."""

    def __init__(self, url, key):
        self.url, self.key = url, key
        self.channel_id = self.resume_token = None
        self.last_seq = 0  # the newest frame from the hub that we have stored
        self.running = {}  # run id -> the task, until the hub accepts its result
        self.waiting = []  # frames that arrived while we waited for another

    def connect(self):
        return connect(self.url, additional_headers={"Authorization": f"Bearer {self.key}"}, max_size=4 << 20)

    def open(self, socket):
        self.socket = socket
        if self.channel_id:
            try:
                reply = self.request({"action": "resume", "channel_id": self.channel_id,
                                      "resume_token": self.resume_token, "last_seq": self.last_seq})
                self.resume_token = reply["resume_token"]
                return
            except Refused:
                pass  # the response with the new token was lost: register again, our claims follow
        reply = self.request({"action": "register", "peer_role": "worker", "capabilities": ["streaming", "resume"],
                              "running": list(self.running)})
        self.channel_id, self.resume_token, self.last_seq = reply["channel_id"], reply["resume_token"], 0
        print(f"connected as {reply['agent_id']}", flush=True)

    def send(self, kind, payload, msg_id=None):
        msg_id = msg_id or str(uuid.uuid4())
        header = {"msg_id": msg_id, "parent_id": None, "type": kind, "from": "subagent", "to": "hub",
                  "timestamp": int(time.time())}
        self.socket.send(json.dumps({"header": header, "payload": payload}))
        return msg_id

    def receive(self):
        while True:
            frame = json.loads(self.socket.recv())
            seq = frame["header"].get("seq")
            if seq is None:
                return frame
            if seq <= self.last_seq:
                continue  # a repeat of a frame that we already have
            self.last_seq = seq
            self.send("notification", {"action": "ack", "seq": seq})
            return frame

    def next(self):
        return self.waiting.pop(0) if self.waiting else self.receive()

    def request(self, payload, msg_id=None):
        """Sends a request and waits for its response, however long a person takes. Other frames wait their turn."""
        msg_id = self.send("request", payload, msg_id)
        while True:
            frame = self.receive()
            if frame["header"]["type"] != "response" or frame["header"]["parent_id"] != msg_id:
                self.waiting.append(frame)
                continue
            if not frame["payload"]["ok"]:
                raise Refused(frame["payload"]["error"]["message"])
            return frame["payload"]


def work(channel, task):
    """Your agent goes here. An exception becomes the failure message."""
    about = {"task_run_id": task["task_run_id"], "epoch": task["epoch"]}
    words = task["query"].split()
    channel.send("notification", {"action": "think", **about, "thought_text": f"I count {len(words)} words."})
    if words and words[0] == "delete":
        ask = {"action": "require_approval", **about, "tool": "delete", "input": {"words": words[1:]}, "risk": "high"}
        # The id is derived from the run, so asking again after a reconnect is the same question.
        answer = channel.request(ask, msg_id=f"approval-{task['task_run_id']}-{task['epoch']}")
        if not answer["approved"]:
            raise RuntimeError("a person denied the request")
    for index, word in enumerate(words):
        channel.send("chunk", {"action": "chunk", **about, "text": word + " "})
        channel.send("notification", {"action": "progress", **about, "message": "counting",
                                      "percent": round(100 * (index + 1) / len(words))})
    channel.send("notification", {"action": "log", **about, "level": "info", "message": "counted"})
    return f"{len(words)} words"


def execute(channel, task):
    about = {"task_run_id": task["task_run_id"], "epoch": task["epoch"]}
    try:
        end = {"action": "done", **about, "result_summary": work(channel, task), "usage_stats": {"tokens": 0}}
    except ConnectionClosed:
        raise
    except Exception as error:
        end = {"action": "fail", **about, "error": str(error), "code": "task_failed"}
    try:
        channel.request(end)
    except Refused as refusal:
        print(f"not accepted: {refusal}", flush=True)  # cancelled in the meantime, or no longer ours


def serve(channel, socket):
    """Works over one connection until it breaks."""
    channel.open(socket)
    for task in list(channel.running.values()):  # tasks interrupted by a disconnect; this agent simply restarts them
        execute(channel, task)
        channel.running.pop(task["task_run_id"], None)
    channel.send("notification", {"action": "ready", "credits": 1})
    while True:
        frame = channel.next()
        payload = frame["payload"]
        if payload.get("action") == "execute":
            channel.running[payload["task_run_id"]] = payload
            execute(channel, payload)
            channel.running.pop(payload["task_run_id"], None)
            channel.send("notification", {"action": "ready", "credits": 1})
        elif payload.get("action") == "cancel":
            channel.running.pop(payload["task_run_id"], None)
        elif payload.get("ok") is False:
            print(f"refused: {payload['error']['message']}", flush=True)


def main():
    channel = Channel(sys.argv[1], os.environ["AGENT_KEY"])
    pause = 0.2
    while True:
        try:
            with channel.connect() as socket:
                serve(channel, socket)
        except InvalidStatus as error:
            sys.exit(f"the hub refused the connection: {error}")
        except (ConnectionClosed, OSError) as error:
            print(f"disconnected: {error}", flush=True)
        channel.waiting.clear()
        time.sleep(pause)


if __name__ == "__main__":
    main()
