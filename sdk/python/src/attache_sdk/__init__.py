"""Attaché for Python: call agents, write agents, and delegate folders.

    from attache_sdk import A2AClient, Worker

`A2AClient` and `AsyncA2AClient` call agents through a hub. `Worker` is an agent that dials out to a hub, `Adapter` one behind
the runtime on this device. `DaemonClient` delegates folders. `tool` and `integrations` make agents tools of a model.
"""
from ._aio.client import AsyncA2AClient
from ._aio.daemon import AsyncDaemonClient
from ._sync.client import A2AClient
from ._sync.daemon import DaemonClient
from .adapter import Adapter, AdapterRun
from .calls import CallReply
from .delegations import DaemonNotRunning, Delegation, DelegationFailed, OutcomeUnknown
from .errors import (
    AlreadyDecided,
    AttacheError,
    CallFailed,
    CallTimeout,
    Conflict,
    Forbidden,
    HubError,
    InvalidReply,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    RunConflict,
    SettingsError,
    Superseded,
    TooLarge,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Untrusted,
)
from .events import RunEvent
from .run import Answer, BlockingRun, Decision, Fail, Reply, Run, RunCancelled
from .tool import AgentTool, remote_agent, toolset
from .version import VERSION as __version__
from .worker import Worker
from .worker_run import ChannelRun

__all__ = [
    "A2AClient",
    "Adapter",
    "AdapterRun",
    "AgentTool",
    "AlreadyDecided",
    "Answer",
    "AsyncA2AClient",
    "AsyncDaemonClient",
    "AttacheError",
    "BlockingRun",
    "CallFailed",
    "CallReply",
    "CallTimeout",
    "ChannelRun",
    "Conflict",
    "DaemonClient",
    "DaemonNotRunning",
    "Decision",
    "Delegation",
    "DelegationFailed",
    "Fail",
    "Forbidden",
    "HubError",
    "InvalidReply",
    "InvalidRequest",
    "NotFound",
    "OutcomeUnknown",
    "QuotaExceeded",
    "Reply",
    "Run",
    "RunCancelled",
    "RunConflict",
    "RunEvent",
    "SettingsError",
    "Superseded",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
    "Unreachable",
    "Untrusted",
    "Worker",
    "__version__",
    "remote_agent",
    "toolset",
]
