// Everything that works in browsers and on Node.
export { A2AClient, type Answer, type CallEvent, type CallOptions, type CallReply } from "./client.js";
export { Channel, type ChannelOptions, type Frame, type Payload, type SendOptions } from "./channel.js";
export {
  AttacheError,
  CallFailedError,
  HubError,
  TaskFailure,
  UnexpectedReplyError,
  UnreachableError,
} from "./errors.js";
export type { ClientOptions, HubConnection, OperationArguments, RequestOptions } from "./http.js";
export type { ArtifactContent, ArtifactDownload, Artifacts } from "./artifacts.js";
export type { Agents, Approvals, Conversations, Runs } from "./resources.js";
export { Paged } from "./paged.js";
export {
  remoteAgent,
  type RemoteAgentArguments,
  type RemoteAgentOptions,
  type RemoteAgentResult,
} from "./remote-agent.js";
export {
  TaskCancelled,
  type Approval,
  type Decision,
  type GivenInput,
  type Task,
  type TaskHandler,
  type TaskOutput,
  type Usage,
} from "./task.js";
export { Worker, type Notice, type WorkerOptions, type WorkerTask } from "./worker.js";
export type * as api from "./api.js";
