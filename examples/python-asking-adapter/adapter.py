#!/usr/bin/env python3
"""An adapter that asks people for permission before it runs a command, and for input. Standard library only.

Run:   python3 examples/python-asking-adapter/adapter.py 7900
See:   listening on http://127.0.0.1:7900
Pair:  attache runtime pair CODE --api-base URL --local-agent-endpoint http://127.0.0.1:7900 --cwd DIR
Then:  attache runtime start, and in another terminal:
       attache ask AGENT "run: rm -r out"        waits until you approve or deny it with `attache approvals`
       attache ask AGENT "ask: Which branch?"    waits until you send input to the run

A task is a list of lines, executed in order:
  say: TEXT       the text becomes part of the answer
  ask: QUESTION   asks the caller; the reply becomes part of the answer
  run: COMMAND    asks for permission, then runs the command in a shell; its output becomes part of the answer
"""
import json, os, signal, subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Run:
    """One task: its events, kept so that clients can replay them from the first, and the answers to its questions."""

    def __init__(self, task):
        self.task, self.id = task, task["task_run_id"]
        self.events, self.asked, self.answers, self.process = [], set(), {}, None
        self.ended = self.cancelled = False
        self.moved = threading.Condition()

    def tell(self, name, data):
        with self.moved:
            self.events.append((name, json.dumps(data)))
            self.ended = name == "result"
            self.moved.notify_all()

    def question(self, name, id, data):
        """Asks and waits, however long it takes. The adapter chooses the id of the question."""
        self.asked.add(id)
        self.tell(name, {"id": id, **data})
        with self.moved:
            self.moved.wait_for(lambda: id in self.answers or self.cancelled)
            if self.cancelled:
                raise Failed("cancelled", "the run was cancelled")
            return self.answers[id]

    def answer(self, id, value):
        """The first answer counts; answering the same question again changes nothing."""
        with self.moved:
            if id in self.asked:
                self.answers.setdefault(id, value)
                self.moved.notify_all()
            return id in self.asked

    def cancel(self):
        with self.moved:
            self.cancelled = True
            if self.process and self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.moved.notify_all()
            self.moved.wait_for(lambda: self.ended)

    def work(self):
        said = []
        try:
            for number, line in enumerate(self.task["input"].get("text", "").splitlines(), 1):
                verb, _, rest = line.strip().partition(": ")
                if verb == "say":
                    said.append(rest)
                elif verb == "ask":
                    given = self.question("input_required", f"input-{number}", {"prompt": rest})
                    said.append(" ".join(part.get("text", "") for part in given["parts"]))
                elif verb == "run":
                    said.append(self.command(f"permission-{number}", rest))
                else:
                    raise Failed("rejected", f"line {number} must start with `say: `, `ask: ` or `run: `")
                self.tell("chunk", {"text": said[-1] + "\n"})
            reply = {"success": True, "output": {"text": "\n".join(said), "artifact_refs": []}}
        except Failed as failed:
            reply = {"success": False, "error": {"code": failed.code, "message": str(failed)}}
        except Exception as error:
            reply = {"success": False, "error": {"code": "host_crashed", "message": str(error)}}
        self.tell("result", reply)

    def command(self, id, command):
        cwd = self.task.get("cwd") or os.getcwd()
        asked = {"tool": "shell", "input": {"command": command}, "cwd": cwd, "reason": "the task says so", "risk": "high"}
        given = self.question("permission", id, asked)
        if not given["approved"]:
            raise Failed("permission_denied", f"`{command}` was not allowed: {given.get('comment') or 'no comment'}")
        with self.moved:
            self.process = subprocess.Popen(["sh", "-c", command], cwd=cwd, start_new_session=True, text=True,
                                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        output = self.process.communicate()[0].rstrip("\n")
        if self.cancelled:
            raise Failed("cancelled", "the run was cancelled")
        if self.process.returncode:
            raise Failed("task_failed", f"`{command}` ended with {self.process.returncode}: {output}")
        return output


class Failed(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Adapter(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    last, slot = None, threading.Lock()  # the current run, or the one that ended last

    def do_GET(self):
        if self.path != "/health":
            return self.refuse(404, "no_such_path", "try /health")
        last = Adapter.last
        running = last.id if last and not last.ended else None
        self.reply(200, {"ok": True, "host": {"type": "asking", "version": "1"}, "asks": True, "running": running})

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        # Checking host, origin and content type keeps web pages out: a browser can reach 127.0.0.1 too.
        if self.headers.get("host", "").split(":")[0] not in ("127.0.0.1", "localhost") or "origin" in self.headers:
            return self.refuse(421, "wrong_host", "call this adapter by its loopback address")
        if body and self.headers.get("content-type") != "application/json":
            return self.refuse(415, "unsupported_media_type", "send application/json")
        path = self.path.strip("/").split("/")
        if path == ["run-task"]:
            return self.run_task(json.loads(body))
        run = Adapter.last
        if len(path) < 3 or path[0] != "run-task" or not run or run.id != path[1]:
            return self.refuse(404, "not_found", "no such run")
        if path[2] == "cancel":
            run.cancel()
            return self.reply(200, json.loads(run.events[-1][1]))
        given = json.loads(body)
        if path[2] == "permission" and run.answer(path[3], given):
            return self.reply(200, {})
        if path[2] == "input" and run.answer(given.get("id"), given):
            return self.reply(200, {})
        self.refuse(404, "not_found", "the run has no such question")

    def run_task(self, task):
        with Adapter.slot:
            run = Adapter.last
            if not run or run.id != task["task_run_id"] or run.cancelled:
                if run and not run.ended:
                    return self.refuse(409, "busy", f"this adapter is executing {run.id}")
                run = Adapter.last = Run(task)
                threading.Thread(target=run.work, daemon=True).start()
        if "text/event-stream" not in self.headers.get("accept", ""):
            with run.moved:
                run.moved.wait_for(lambda: run.ended)
            return self.reply(200, json.loads(run.events[-1][1]))
        after = int(self.headers.get("last-event-id") or 0)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        try:
            self.stream(run, after if after <= len(run.events) else 0)
        except OSError:
            pass  # the client disconnected; the run continues
        self.close_connection = True

    def stream(self, run, seq):
        while True:
            with run.moved:
                run.moved.wait_for(lambda: len(run.events) > seq, timeout=10)
                events = run.events[seq:]
            if not events:
                if run.ended:
                    return
                self.wfile.write(b":\n\n")
            for name, data in events:
                seq += 1
                self.wfile.write(f"id: {seq}\nevent: {name}\ndata: {data}\n\n".encode())
                if name == "result":
                    return

    def refuse(self, status, code, message):
        self.reply(status, {"error": {"code": code, "message": message, "hint": "see docs/adapter.md"}})

    def reply(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        try:
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            pass  # the client disconnected

    def log_message(self, format, *arguments):
        pass  # requests can contain private text


class Server(ThreadingHTTPServer):
    daemon_threads = True


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 7900), Adapter)
    print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
