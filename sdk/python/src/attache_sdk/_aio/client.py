"""The client of a hub: calls, runs, approvals, artifacts, conversations and agents."""
from __future__ import annotations

import os
import secrets
import time as clock
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, overload

from ..bodies import AsyncIterableBody, async_pieces, size_of
from ..calls import CallReply, call_id, given, milliseconds, new_key, reply_of, run_id
from ..errors import CallTimeout, RunConflict
from ..events import RunEvent
from ..settings import resolve
from ..types import (
    Account,
    Budget,
    CallbackEvent,
    CallResult,
    CallStarted,
    Conversation,
    ConversationMessage,
    DecisionScope,
    GiveInputResponse,
    HubHealth,
    PairingCodeResponse,
    PermissionGrant,
    PermissionRequest,
    PermissionState,
    RegisteredAgent,
    Run,
    RunStatus,
    Sandbox,
    WorkspaceArtifact,
)
from .transport import AsyncTransport, path

_LONG_POLL = 20.0
# The hub holds a request open for a minute at most.
_LONGEST_POLL = 60.0


def _v1(*segments: str) -> str:
    return path("api", "v1", *segments)


class AsyncA2AClient:
    """An asynchronous client of one hub with one key. Use it as a context manager, or close it.

    Without arguments, the hub is the one that the command line would use: ATTACHE_URL and ATTACHE_KEY, the current
    context (`attache context`), or the hub on this machine.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        pin: str | None = None,
        context: str | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
    ) -> None:
        """`pin` is for a hub with a self-signed certificate, `context` names a hub saved by `attache context`.

        `timeout` limits one request. `patience` is how long a hub that answered before may be away: until then,
        requests that can't take effect twice are repeated, and streams resume.
        """
        self._transport = AsyncTransport(resolve(url, key, pin, context), timeout, patience)

    @property
    def url(self) -> str:
        return self._transport.settings.url

    async def __aenter__(self) -> AsyncA2AClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._transport.aclose()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def request(self, method: str, target: str, **options: Any) -> Any:
        """Anything else the hub can do (openapi.json): `request("GET", "/api/v1/usage", params={…})`."""
        return await self._transport.request(method, target, **options)

    async def health(self) -> HubHealth:
        health: HubHealth = await self._transport.request("GET", "/readyz")
        return health

    # === Calls ===

    @overload
    async def call(
        self,
        agent: str | None,
        task: str,
        *,
        wait: Literal[True] = True,
        wait_timeout: float | None = None,
        context: Any = None,
        conversation_id: str | None = None,
        parts: Sequence[Any] | None = None,
        budget: Budget | None = None,
        sandbox: Sandbox | None = None,
        priority: int | None = None,
        timeout: float | None = None,
        callback_url: str | None = None,
        callback_events: list[CallbackEvent] | None = None,
        parent_run: str | None = None,
        idempotency_key: str | None = None,
    ) -> CallReply: ...

    @overload
    async def call(
        self,
        agent: str | None,
        task: str,
        *,
        wait: Literal[False],
        wait_timeout: float | None = None,
        context: Any = None,
        conversation_id: str | None = None,
        parts: Sequence[Any] | None = None,
        budget: Budget | None = None,
        sandbox: Sandbox | None = None,
        priority: int | None = None,
        timeout: float | None = None,
        callback_url: str | None = None,
        callback_events: list[CallbackEvent] | None = None,
        parent_run: str | None = None,
        idempotency_key: str | None = None,
    ) -> CallStarted: ...

    async def call(
        self,
        agent: str | None,
        task: str,
        *,
        wait: bool = True,
        wait_timeout: float | None = None,
        context: Any = None,
        conversation_id: str | None = None,
        parts: Sequence[Any] | None = None,
        budget: Budget | None = None,
        sandbox: Sandbox | None = None,
        priority: int | None = None,
        timeout: float | None = None,
        callback_url: str | None = None,
        callback_events: list[CallbackEvent] | None = None,
        parent_run: str | None = None,
        idempotency_key: str | None = None,
    ) -> CallReply | CallStarted:
        """Gives an agent a task, and waits for the answer unless `wait` is false.

        `agent` is a name or id, or a skill or capability that exactly one agent has; None is the hub's default agent.
        `timeout` limits the agent's work, `wait_timeout` only how long you wait (then CallTimeout; the call continues).
        A call that fails raises CallFailed. A request whose answer is lost is repeated and still makes one call; pass
        your own `idempotency_key` to get the same call even from another process.
        """
        body = given(
            task=task,
            agent_type=agent,
            context=context,
            conversation_id=conversation_id,
            parts=None if parts is None else list(parts),
            budget=budget,
            sandbox=sandbox,
            priority=priority,
            timeout_ms=milliseconds(timeout),
            callback_url=callback_url,
            callback_events=callback_events,
            parent_task_run_id=None if parent_run is None else run_id(parent_run),
        )
        key = idempotency_key or new_key("call")
        started: CallStarted = await self._transport.request("POST", path("api", "a2a", "call"), json=body, key=key)
        return await self.wait(started["call_id"], timeout=wait_timeout) if wait else started

    async def get_result(self, call: str, *, wait: float = 0.0) -> CallResult:
        """The state of a call, and its result if it has ended. Waits for its end for up to `wait` seconds (60)."""
        target = path("api", "a2a", "result", call_id(call))
        wait = min(wait, _LONGEST_POLL)
        params = {"wait_ms": milliseconds(wait)} if wait else None
        result: CallResult = await self._transport.request("GET", target, params=params, wait=wait)
        return result

    async def wait(self, call: str, *, timeout: float | None = None) -> CallReply:
        """Waits for the answer to a call, over as many connections as it takes."""
        until = None if timeout is None else clock.monotonic() + timeout
        while True:
            left = _LONG_POLL if until is None else max(0.0, min(_LONG_POLL, until - clock.monotonic()))
            reply = reply_of(call_id(call), await self.get_result(call, wait=left))
            if reply is not None:
                return reply
            if until is not None and clock.monotonic() >= until:
                raise CallTimeout(call_id(call))

    def watch(self, call: str, *, after: int = 0) -> AsyncGenerator[RunEvent, None]:
        """Every event of a call or run behind `after`: each once and in order, until it ends.

        A broken connection is resumed by cursor. To continue in another process, pass the `seq` of the last event.
        """
        return self._transport.follow(run_id(call), after)

    async def cancel(self, call: str, *, reason: str | None = None) -> Run:
        """Cancels a call or run, and the calls made on its behalf. One that has ended stays as it is."""
        target = _v1("task-runs", run_id(call), "cancel")
        try:
            run: Run = await self._transport.request("POST", target, json=given(reason=reason), repeatable=True)
        except RunConflict as ended:
            if ended.run is None:
                raise
            return ended.run
        return run

    async def answer(
        self, call: str, text: str | None = None, *, parts: Sequence[Any] | None = None, question: str | None = None
    ) -> GiveInputResponse:
        """Answers a question of the agent (`question` is its `ask_…` id; default: the oldest), or sends it input."""
        body = given(text=text, parts=None if parts is None else list(parts), input_request_id=question)
        body["idempotency_key"] = new_key("answer")
        target = _v1("task-runs", run_id(call), "input")
        answer: GiveInputResponse = await self._transport.request("POST", target, json=body, repeatable=True)
        return answer

    # === Runs ===

    async def create_run(self, agent: str, input: Any, *, idempotency_key: str | None = None, **members: Any) -> Run:
        """Creates a run with full control: `members` are those of CreateRunRequest, `input` is `{"text": …}` or yours."""
        body = {"agent_id": agent, "input": {"text": input} if isinstance(input, str) else input, **members}
        run: Run = await self._transport.request(
            "POST", _v1("task-runs"), json=body, key=idempotency_key or new_key("run")
        )
        return run

    async def run(self, run: str) -> Run:
        """One run or call, in full."""
        found: Run = await self._transport.request("GET", _v1("task-runs", run_id(run)))
        return found

    def runs(
        self,
        *,
        status: RunStatus | None = None,
        agent: str | None = None,
        conversation_id: str | None = None,
        text: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[Run, None]:
        """Runs, newest first. Long inputs and results are cut: `run(id)` has them in full."""
        params = given(status=status, agent_id=agent, conversation_id=conversation_id, text=text)
        return self._transport.pages(_v1("task-runs"), "task_runs", params, limit)

    async def delete_run(self, run: str) -> None:
        """Deletes a run that has ended."""
        await self._transport.request("DELETE", _v1("task-runs", run_id(run)))

    # === Approvals ===

    def approvals(
        self,
        *,
        state: PermissionState | None = "pending",
        run: str | None = None,
        agent: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[PermissionRequest, None]:
        """Permission requests of agents; by default those that wait for a decision. Show their text as inert text."""
        params = given(state=state, task_run_id=None if run is None else run_id(run), agent_id=agent)
        return self._transport.pages(_v1("permission-requests"), "permission_requests", params, limit)

    async def approval(self, request: str) -> PermissionRequest:
        found: PermissionRequest = await self._transport.request("GET", _v1("permission-requests", request))
        return found

    async def decide(
        self,
        request: str,
        approved: bool,
        *,
        scope: DecisionScope | None = None,
        comment: str | None = None,
        tool_pattern: str | None = None,
        until: str | None = None,
        this_channel_only: bool | None = None,
    ) -> PermissionRequest:
        """Approves or denies. A request can only be decided once: AlreadyDecided says who was first."""
        body = given(
            approved=approved,
            scope=scope,
            comment=comment,
            tool_pattern=tool_pattern,
            until=until,
            this_channel_only=this_channel_only,
        )
        target = _v1("permission-requests", request, "decision")
        # The same decision by the same person again is the same decision.
        decided: PermissionRequest = await self._transport.request("POST", target, json=body, repeatable=True)
        return decided

    async def approve(self, request: str, *, scope: DecisionScope | None = None, comment: str | None = None) -> PermissionRequest:
        return await self.decide(request, True, scope=scope, comment=comment)

    async def deny(self, request: str, *, comment: str | None = None) -> PermissionRequest:
        return await self.decide(request, False, comment=comment)

    def grants(self, *, limit: int | None = None) -> AsyncGenerator[PermissionGrant, None]:
        """Standing grants: decisions that reach further than one request."""
        return self._transport.pages(_v1("permission-grants"), "permission_grants", {}, limit)

    async def revoke_grant(self, grant: str) -> PermissionGrant:
        revoked: PermissionGrant = await self._transport.request("DELETE", _v1("permission-grants", grant))
        return revoked

    # === Artifacts ===

    async def upload(
        self, workspace: str, name: str, body: AsyncIterableBody, *, media_type: str = "application/octet-stream"
    ) -> WorkspaceArtifact:
        """Uploads bytes, a file (a Path), an open file or pieces to the workspace of a run or conversation.

        Not repeated if the answer is lost, because a second upload is a second artifact: check `artifacts(workspace)`.
        """
        headers = {"content-type": media_type}
        size = size_of(body)
        if size is not None:
            headers["content-length"] = str(size)
        target = _v1("workspaces", workspace, "artifacts", name)
        artifact: WorkspaceArtifact = await self._transport.upload(target, async_pieces(body), headers)
        return artifact

    def artifacts(self, workspace: str, *, limit: int | None = None) -> AsyncGenerator[WorkspaceArtifact, None]:
        """The files of a workspace, newest first."""
        target = _v1("workspaces", workspace, "artifacts")
        return self._transport.pages(target, "artifacts", {}, limit)

    async def artifact(self, artifact: str) -> WorkspaceArtifact:
        """Name, size and media type of an artifact."""
        found: WorkspaceArtifact = await self._transport.request(
            "GET", _v1("artifacts", artifact), params={"meta": "1"}
        )
        return found

    def stream(self, artifact: str) -> AsyncGenerator[bytes, None]:
        """The bytes of an artifact, piece by piece. A broken connection continues where it broke."""
        return self._transport.download(_v1("artifacts", artifact))

    async def read(self, artifact: str) -> bytes:
        """All bytes of an artifact that fits into memory."""
        return b"".join([piece async for piece in self.stream(artifact)])

    async def download(self, artifact: str, to: str | os.PathLike[str]) -> Path:
        """Writes an artifact to a file. The file appears when it is complete."""
        target = Path(to)
        # Nobody can know its name, and put a link there.
        part = target.with_name(f"{target.name}.{secrets.token_hex(8)}.part")
        try:
            with open(part, "xb") as file:
                async for piece in self.stream(artifact):
                    file.write(piece)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    # === Conversations ===

    async def create_conversation(self, title: str | None = None, *, metadata: dict[str, Any] | None = None) -> Conversation:
        """`metadata` can have `instructions` for the agents that work in it. Its `workspace_id` takes files."""
        body = given(title=title, metadata=metadata)
        made: Conversation = await self._transport.request("POST", _v1("conversations"), json=body)
        return made

    def conversations(self, *, limit: int | None = None) -> AsyncGenerator[Conversation, None]:
        return self._transport.pages(_v1("conversations"), "conversations", {}, limit)

    async def conversation(self, conversation: str) -> Conversation:
        found: Conversation = await self._transport.request("GET", _v1("conversations", conversation))
        return found

    def messages(self, conversation: str, *, limit: int | None = None) -> AsyncGenerator[ConversationMessage, None]:
        target = _v1("conversations", conversation, "messages")
        return self._transport.pages(target, "messages", {}, limit)

    async def add_message(self, conversation: str, text: str, *, metadata: dict[str, Any] | None = None) -> ConversationMessage:
        target = _v1("conversations", conversation, "messages")
        made: ConversationMessage = await self._transport.request(
            "POST", target, json=given(text=text, metadata=metadata)
        )
        return made

    async def delete_conversation(self, conversation: str) -> None:
        await self._transport.request("DELETE", _v1("conversations", conversation))

    # === Agents ===

    def agents(self, *, limit: int | None = None) -> AsyncGenerator[Account, None]:
        """The agents that this key can reach."""
        return self._transport.pages(_v1("agent-accounts"), "agent_accounts", {}, limit)

    async def agent(self, agent: str) -> Account:
        found: Account = await self._transport.request("GET", _v1("agent-accounts", agent))
        return found

    async def create_agent(self, name: str, **members: Any) -> Account:
        """`members` are those of AccountRequest: description, instructions, skills, approvals, …"""
        made: Account = await self._transport.request("POST", _v1("agent-accounts"), json={"name": name, **members})
        return made

    async def update_agent(self, agent: str, **members: Any) -> Account:
        target = _v1("agent-accounts", agent)
        updated: Account = await self._transport.request("PATCH", target, json=members, repeatable=True)
        return updated

    async def archive_agent(self, agent: str) -> Account:
        archived: Account = await self._transport.request("DELETE", _v1("agent-accounts", agent))
        return archived

    async def pairing_code(self, agent: str) -> PairingCodeResponse:
        """A code that pairs one device with the agent: `attache runtime pair CODE`."""
        made: PairingCodeResponse = await self._transport.request("POST", _v1("agent-accounts", agent, "pairing-codes"))
        return made

    async def register(
        self,
        name: str | None = None,
        *,
        capabilities: Sequence[str] | None = None,
        device_info: dict[str, Any] | None = None,
        pairing_code: str | None = None,
    ) -> RegisteredAgent:
        """Gives an agent its own key, for a Worker. Registering again invalidates the old key."""
        body = given(
            agent_id=name,
            capabilities=None if capabilities is None else list(capabilities),
            device_info=device_info,
            pairing_token=pairing_code,
        )
        # A key whose answer was lost is of no use to anyone, and the next one replaces it.
        target = path("api", "a2a", "register")
        made: RegisteredAgent = await self._transport.request("POST", target, json=body, repeatable=True)
        return made


