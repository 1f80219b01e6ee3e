#!/usr/bin/env python3
"""An adapter for Hermes, written only from docs/adapter.md. Uses only Python's standard library.

Run:   python3 examples/hermes-adapter/adapter.py 7900
See:   listening on http://127.0.0.1:7900
Pair:  attache runtime pair CODE --api-base URL --local-executor-type hermes --local-agent-endpoint http://127.0.0.1:7900
Then:  attache runtime start, and in another terminal: attache ask AGENT "what is in this folder?"

Every task is one `hermes -z`, which approves all of its own steps without asking a person. See README.md.
"""
import json, os, re, shutil, signal, subprocess, sys, tempfile, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HERMES = shutil.which("hermes")
busy = threading.Lock()  # one task at a time
running = {"id": None, "process": None, "cancelled": False, "ended": threading.Event()}


def version():
    if not HERMES:
        return None
    result = subprocess.run([HERMES, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    found = re.search(r"\d+(\.\d+)+", result.stdout)
    return found.group() if found else None


def failed(code, message, usage=None):
    reply = {"success": False, "error": {"code": code, "message": message}}
    return {**reply, "usage": usage} if usage else reply


def prompt_of(task):
    """The task's text. `hermes -z` has no system prompt, so instructions and context go before it."""
    text = task["input"].get("text", "") if isinstance(task["input"], dict) else str(task["input"])
    if not text.strip():
        return None
    before = [task.get("instructions") or ""]
    before += [part if isinstance(part, str) else json.dumps(part) for part in task.get("context_fragments") or []]
    return "\n\n".join([part for part in before if part.strip()] + [text])


def usage_of(path):
    """The usage that Hermes reported, marked as an estimate."""
    try:
        with open(path) as file:
            report = json.load(file)
    except (OSError, ValueError):
        return None
    usage = {"tokens": report.get("total_tokens"), "cost_usd": report.get("estimated_cost_usd")}
    usage = {name: value for name, value in usage.items() if value is not None}
    return {**usage, "source": "estimated"} if usage else None


def run(task):
    prompt = prompt_of(task)
    if prompt is None:
        return failed("rejected", "the task has no text")
    sandbox = task.get("sandbox") or {}
    limits = {"cwd_only": True, "allow_network": False, "allow_exec": False}
    required = [name for name, limit in limits.items() if sandbox.get(name) is limit]
    if required:
        return failed("refused", f"the run requires limits that this adapter can't enforce: {', '.join(required)}")
    if not HERMES:
        return failed("host_crashed", "`hermes` is not in PATH; install it with: pip install hermes-agent")
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "usage.json")
        # A separate session, so that cancel reaches everything that Hermes starts.
        process = subprocess.Popen(
            [HERMES, "-z", prompt, "--usage-file", report], cwd=task.get("cwd"), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
        running["process"] = process
        if running["cancelled"]:
            stop(process)
        answer, errors = process.communicate()
        usage = usage_of(report)
    if running["cancelled"]:
        return failed("cancelled", "the run was cancelled", usage)
    if process.returncode != 0:
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit status {process.returncode}"
        code = "host_crashed" if process.returncode < 0 else "task_failed"
        return failed(code, f"hermes ended with {how}: {(errors or answer).strip()[-2000:]}", usage)
    output = {"text": answer, "artifact_refs": []}
    return {"success": True, "output": {**output, "usage": usage} if usage else output}


def stop(process):
    """Stops the process group, with SIGTERM first, and returns once it is gone, within a second."""
    for number, timeout in ((signal.SIGTERM, 0.5), (signal.SIGKILL, 0.4)):
        deadline = time.monotonic() + timeout
        try:
            os.killpg(process.pid, number)
            while time.monotonic() < deadline:
                process.poll()
                os.killpg(process.pid, 0)
                time.sleep(0.01)
        except ProcessLookupError:
            return


class Adapter(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path != "/health":
            return self.refuse(404, "no_such_path", "try /health")
        self.reply(200, {"ok": True, "host": {"type": "hermes", "version": VERSION}, "running": None})

    def do_POST(self):
        # Checking host, origin and content type keeps web pages out: a browser can reach 127.0.0.1 too.
        if self.headers.get("host", "").split(":")[0] not in ("127.0.0.1", "localhost"):
            return self.refuse(421, "wrong_host", "the Host header must be a loopback address")
        if self.headers.get("origin"):
            return self.refuse(403, "foreign_origin", "requests from web pages are refused")
        cancel = re.fullmatch(r"/run-task/([^/]+)/cancel", self.path)
        if cancel:
            return self.cancel(cancel.group(1))
        if self.path != "/run-task":
            return self.refuse(404, "no_such_path", "try /run-task")
        if self.headers.get("content-type") != "application/json":
            return self.refuse(415, "unsupported_media_type", "POST application/json")
        if not busy.acquire(blocking=False):
            return self.refuse(409, "busy", "one task at a time")
        try:
            task = json.loads(self.rfile.read(int(self.headers["content-length"])))
            running.update(id=task["task_run_id"], process=None, cancelled=False, ended=threading.Event())
            reply = run(task)
        except Exception as error:
            reply = failed("task_failed", f"{type(error).__name__}: {error}")
        finally:
            running["id"] = None
            running["ended"].set()
            busy.release()
        self.reply(200, reply)

    def cancel(self, run_id):
        if run_id != running["id"]:
            return self.refuse(404, "not_found", "that run is not being executed here")
        ended, running["cancelled"] = running["ended"], True
        if running["process"]:
            stop(running["process"])
        ended.wait(1)
        self.reply(200, failed("cancelled", "the run was cancelled"))

    def refuse(self, status, code, message):
        self.reply(status, {"error": {"code": code, "message": message, "hint": "See docs/adapter.md."}})

    def reply(self, status, value):
        body = json.dumps(value).encode()
        try:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        except BrokenPipeError:
            pass  # the runtime has disconnected


VERSION = version()
server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 7900), Adapter)
print(f"listening on http://127.0.0.1:{server.server_port}", flush=True)
server.serve_forever()
