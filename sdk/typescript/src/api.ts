// The types of the hub's API. Generated from openapi/openapi.json by generate.mjs: don't edit.

/** What the current rules decide, and why. */
export interface AccessDecision {
  agent: string;
  allowed: boolean;
  because: AccessReason;
  object: string;
  /** The pattern that decided, if any. */
  rule?: string | null;
}

export type AccessMode = "ro" | "rw";

/** The basis of a decision. */
export type AccessReason = "rule" | "own" | "default" | "no_such_name";

/** `GET /api/v1/permission-rules`. */
export interface AccessRules {
  changed_at?: Timestamp | null;
  changed_by?: string | null;
  /** The rules file, if the hub was started with one. */
  file?: string | null;
  /** Why the current file content is not applied. The rules above stay active. */
  problem?: string | null;
  /** The YAML as written. */
  text: string;
  /** Increases with every change. Send it back with a change to avoid overwriting someone else's. */
  version: number;
}

export interface Account {
  a2a?: Json | null;
  agent_id: AgentId;
  approvals?: ApprovalPolicy | null;
  archived_at?: Timestamp | null;
  callers?: Callers;
  /** What an approval of its requests needs. */
  confirm_approvals?: ApprovalConfirmation;
  created_at: Timestamp;
  description?: string | null;
  /** What this change ended, because the agent is now private or its approvals need a passkey. Only in the response to that change. */
  ended?: Array<AddedPart>;
  instructions?: string | null;
  name: string;
  /** What its runs do at a usage limit of its model account. */
  on_limit?: OnLimit;
  /** Its owner. Null for an agent of the organisation. */
  owner_id?: UserId | null;
  /** Only for an account that represents an outside A2A agent. */
  peer?: PeerInfo | null;
  /** The default time limit of its runs. Null: the hub's default. */
  run_timeout_ms?: number | null;
  /** The currently paired device, if any. */
  runtime?: Runtime | null;
  /** Whether its owner wrote `instructions` and what `approvals` approve in advance, or there is neither. Otherwise the
   * owner's runs are inside the walls of their device, too, until they send both again. */
  settings_by_owner?: boolean;
  skills: Array<Skill>;
  status: Presence;
}

export interface AccountList {
  agent_accounts: Array<Account>;
  next_cursor?: string | null;
}

/** The body of `POST` and, with all members optional, `PATCH /api/v1/agent-accounts`. */
export interface AccountRequest {
  /** A2A options, kept as sent. */
  a2a?: Json | null;
  /** How its permission requests time out and who is notified. `{}` restores the hub's defaults. */
  approvals?: ApprovalPolicy | null;
  /** Who may put it to work. Only its owner can share a private agent. `owner` ends what others added to the agent. */
  callers?: Callers | null;
  /** What an approval of its requests needs. Only its owner can change this, in person. With `passkey`, standing approvals
   * end, and nothing is approved in advance. Default: `none`. */
  confirm_approvals?: ApprovalConfirmation | null;
  description?: string | null;
  instructions?: string | null;
  name?: string | null;
  /** What its runs do at a usage limit of its model account. Default: `fallback`. */
  on_limit?: OnLimit | null;
  /** The owner, by name or id, or `""` for none. Only admins can set this. By default, the creator is the owner. */
  owner?: string | null;
  /** Makes the account represent an outside A2A agent, which is called instead of a device. */
  peer?: PeerRequest | null;
  /** The default time limit of its runs. 0 restores the hub's default. */
  run_timeout_ms?: number | null;
  skills?: Array<Skill> | null;
}

/** A message is stored in the conversation and does not start a run. */
export interface AddMessageRequest {
  metadata?: Json | null;
  text: string;
}

/** What others had added to an agent. */
export type AddedPart = "runtime" | "key" | "peer" | "approval_webhook" | "grants";

export type AgentId = string;

/** 409: someone else decided first. */
export interface AlreadyDecided {
  decided_at?: Timestamp | null;
  decided_by?: string | null;
  error: ErrorDetail;
  permission_request: PermissionRequest;
}

/** What an approval of an agent's requests needs, beside a person who may decide. */
export type ApprovalConfirmation = "none" | "passkey";

/** `approvals` of an agent account: which requests need a person, how they time out, and who is notified. */
export interface ApprovalPolicy {
  /** Which steps need no approval by a person. `ask` unless set. */
  mode?: PermissionMode | null;
  on_timeout?: OnTimeout | null;
  timeout_ms?: number | null;
  /** Commands that need no approval either: words, where `*` matches any one word or, at the end, any number of them
   * (`git diff *`). */
  trusted_commands?: Array<string>;
  /** Notified of every request of this agent that waits for a person. Query values are shown as `***`. */
  webhook_url?: string | null;
}

export type ArtifactId = string;

export interface ArtifactList {
  artifacts: Array<WorkspaceArtifact>;
  next_cursor?: string | null;
}

export interface AttachRequest {
  device_name?: string | null;
  labels?: Json | null;
  pairing_token: string;
}

/** The only response that contains the runtime token. */
export interface AttachResponse {
  agent_id: AgentId;
  /** The agent's name. */
  agent_name?: string | null;
  heartbeat_timeout_ms: number;
  runtime_id: RuntimeId;
  runtime_token: string;
}

export interface AuditPage {
  /** The head of the log, signed by the hub. Keep it to prove later what the log contained. */
  checkpoint?: Checkpoint | null;
  events: Array<LogRow>;
  /** Retention may have removed the oldest rows: the chain starts after this seq … */
  floor: number;
  /** … with this hash. The newest `log.removed` row has the same. */
  floor_hash: string;
  /** The newest seq in the log. */
  head: number;
  /** How long rows are kept. Newer ones are never removed. */
  kept_for_ms?: number | null;
  /** Pass it as `after` to continue. */
  next: number;
}

/** The codes of the AWCP specification, plus `EXPIRED`. */
export type AwcpErrorCode = "DECLINED" | "DEP_MISSING" | "MOUNTPOINT_DENIED" | "START_EXPIRED" | "AUTH_FAILED" | "MOUNT_FAILED" | "TASK_FAILED" | "CANCELLED" | "EXPIRED";

/** The most one run may use. */
export interface Budget {
  /** Dollars. */
  cost_usd?: Json | null;
  tokens?: number | null;
}

export interface CallAnswer {
  /** Files the agent produced, if any. */
  artifact_refs?: Json | null;
  details?: Json | null;
  /** Present if the summary is not exactly what the agent printed: the length of the complete output, and where it
   * is. */
  full_output?: OutputLocation | null;
  /** The answer as text: a JSON string. */
  summary: Json;
}

export type CallId = string;

/** `POST /api/a2a/call`. */
export interface CallRequest {
  /** An agent's name or id, or a skill or capability that exactly one agent has. `agent` and `agent_id` mean the same. */
  agent_type?: string | null;
  /** The most it may use. */
  budget?: Budget | null;
  /** Other events to send to the callback. */
  callback_events?: Array<CallbackEvent> | null;
  /** Called when the call has ended. */
  callback_url?: string | null;
  context?: Json | null;
  /** The conversation it belongs to. Default: a new one. */
  conversation_id?: ConversationId | null;
  /** The id or name of an agent that gets the task if this one's model account has reached a usage limit. */
  fallback_agent_id?: string | null;
  /** The parent run, for an agent that holds or created it. */
  parent_task_run_id?: RunId | null;
  /** Files, data and links for the task, as parts of an A2A 1.0 message. */
  parts?: Array<Json> | null;
  /** Replaces the agent's permission mode for this call. Only callers who can change the agent's own can choose one that
   * isn't stricter. */
  permission_mode?: PermissionMode | null;
  /** Higher goes first. Default: 0. */
  priority?: number | null;
  /** Limits that the worker must enforce, or refuse the call. */
  sandbox?: Sandbox | null;
  task: string;
  /** How long it may take once an agent works on it. Default: the agent's or the hub's limit. */
  timeout_ms?: number | null;
  /** Let the run work in its own git worktree. Only for callers who can change the agent, if its device supports it. */
  worktree?: boolean;
}

/** `GET /api/a2a/result/{call_id}`. */
export interface CallResult {
  code?: string | null;
  /** For a call that failed or was cancelled. */
  error?: Json | null;
  /** For a completed call. */
  result?: CallAnswer | null;
  stats: CallStats;
  status: CallStatus;
}

/** The response to a call. The work continues. */
export interface CallStarted {
  call_id: CallId;
  status: CallStatus;
  /** The WebSocket URL for watching the call. */
  watch_url: string;
}

export interface CallStats {
  /** In US dollars, as reported by the agent. */
  cost?: Json | null;
  /** From the claim to the end, or to now. */
  duration_ms: number;
  /** As reported by the agent. Null if not reported. */
  tokens?: Json | null;
}

export type CallStatus = "started" | "running" | "completed" | "failed" | "cancelled";

/** The response to `POST /api/a2a/v1/tasks`, and `GET /api/a2a/v1/tasks/{id}`: the request and its result. */
export interface CallTask {
  capabilities?: Json | null;
  code?: string | null;
  context?: Json | null;
  error?: Json | null;
  header: Json;
  result?: CallAnswer | null;
  /** For a task that has ended. */
  stats?: CallStats | null;
  task: CallTaskState;
}

export interface CallTaskBody {
  /** The agent must have all of them, each as a skill or capability. */
  capabilities_required?: Array<string> | null;
  description: string;
}

/** `POST /api/a2a/v1/tasks`. */
export interface CallTaskRequest {
  /** The most it may use. */
  budget?: Budget | null;
  /** Other events to send to the callback. */
  callback_events?: Array<CallbackEvent> | null;
  /** Called when the task has ended. */
  callback_url?: string | null;
  capabilities?: Json | null;
  context?: Json | null;
  header?: Json | null;
  /** Limits that the worker must enforce, or refuse the task. */
  sandbox?: Sandbox | null;
  task: CallTaskBody;
}

export interface CallTaskState {
  capabilities_required?: Array<string> | null;
  description: string;
  id: CallId;
  status: CallStatus;
}

export type CallbackEvent = "ended" | "approval";

/** Who may put an agent to work. */
export type Callers = "everyone" | "owner";

export interface CancelRequest {
  reason?: string | null;
}

export interface ChangedPath {
  /** Lines, for text files. */
  added?: number | null;
  /** Someone else also changed it during the lease. */
  also_changed_here?: boolean;
  change: FileChangeKind;
  path: string;
  removed?: number | null;
  /** The program that runs or obeys this file automatically. Check the file before you use that program here. */
  run_by?: string | null;
}

export interface Channel {
  /** The channel's owner: `agent:agt_…` or `key:key_…`. */
  account_ref: string;
  /** Where the peer connected from. */
  address?: string | null;
  agent_card_ref?: string | null;
  agent_id?: AgentId | null;
  capabilities: Array<string>;
  channel_id: ChannelId;
  connected_at: Timestamp;
  created_at: Timestamp;
  device_info?: Json | null;
  disconnected_at?: Timestamp | null;
  last_seen_at: Timestamp;
  native_protocol?: string | null;
  peer_role: PeerRole;
  /** Why it is disconnected. */
  reason?: string | null;
  /** Identifies the current resume token without revealing it. */
  resume_token_ref?: string | null;
  runtime_id?: RuntimeId | null;
  status: ConnectionState;
  /** The tools the peer registered, as it described them. */
  tools: Json;
  transport: Transport;
  /** Frames the peer has not acknowledged. */
  unacknowledged: number;
}

/** One page of `/channels/{id}/events`. Below the retention floor it starts with `snapshot.repaired`. */
export interface ChannelEventPage {
  events: Array<Event>;
  /** Pass it as `after` to continue. */
  next: number;
}

export type ChannelId = string;

export interface ChannelList {
  channels: Array<Channel>;
  next_cursor?: string | null;
}

/** `POST /api/v1/permission-rules/check`: checks whether an agent may reach an object. */
export interface CheckAccess {
  /** An agent's name or id. */
  agent: string;
  /** `agents/NAME`, `agents/NAME/memory/PATH`, `conversations/USER/ID` or `resources/SPACE/ARTIFACT`. */
  object: string;
}

/** The hub's signed statement that its log has this row with this hash. The hash covers all rows before it. */
export interface Checkpoint {
  /** When it was signed. */
  at: Timestamp;
  /** Hex of the chain's hash up to and including this row. */
  hash: string;
  /** The key that signed it, which the hub also publishes at `/.well-known/jwks.json`. */
  key: PublicKey;
  seq: number;
  /** ES256 over [`Checkpoint::message`], in base64url without padding. */
  signature: string;
  tenant_id: string;
}

/** A claimed run, as its runtime receives it. */
export interface ClaimedRun {
  agent_id: AgentId;
  allowed_tools?: Json | null;
  attempt: number;
  /** What is left of its own budget and of the quotas that apply. An absent member is not limited. */
  budget?: Budget | null;
  /** The caller, as `kind:id`. For a delegation, by name if there is one: `user:ann`, `agent:planner`. */
  caller?: string;
  context_fragments?: Json | null;
  conversation_id: ConversationId;
  /** When the run times out. */
  deadline: Timestamp;
  epoch: number;
  /** Whether the agent's owner created it in person, not through an agent or another run. */
  for_owner?: boolean;
  /** The session on the device that the conversation continues, if the run is `for_owner`. Otherwise, it can't be executed. */
  host_session?: string | null;
  input: Json;
  instructions?: string | null;
  lease_expires_at: Timestamp;
  /** The hub's tools, with a token limited to this run's rights while this claim lasts. Must not be logged. */
  mcp?: Record<string, unknown> | null;
  parent_task_run_id?: RunId | null;
  /** `plan_first` if the agent must get its plan approved before it changes anything. Other modes concern only the hub. */
  permission_mode?: PermissionMode | null;
  /** The limits its caller required. */
  sandbox?: Sandbox | null;
  task_run_id: RunId;
  task_type: string;
  trace_id?: string | null;
  workspace_id: WorkspaceId;
  workspace_root?: string | null;
  /** Whether it works in its own git worktree, on its own branch, instead of in the agent's folder. */
  worktree?: boolean;
}

export interface CompleteRequest {
  epoch?: number | null;
  /** What the agent got of the unsolicited input to the run. Whatever isn't listed is reported as undelivered. Without
   * the member, nothing is known about it. */
  inputs_taken?: Array<InputId> | null;
  /** `{"text","details"?,"artifact_refs"?:["art_…"],"message"?:{"parts"},"artifacts"?:[{"artifact_id"?,"name"?,"parts"}],
   * "reply"?:"message"}`, kept as sent. The last three are for A2A callers. */
  output: Json;
  usage?: Json | null;
}

export type ConnectionState = "connected" | "disconnected";

/** A browser that is or was signed in to the console. */
export interface ConsoleSession {
  /** The browser's address when it signed in. */
  address?: string | null;
  created_at: Timestamp;
  /** Whether this is the caller's own session. */
  current: boolean;
  /** When it was signed out or ended. */
  ended_at?: Timestamp | null;
  expires_at?: Timestamp | null;
  /** The key or session that created the login link, with which it ends. Null: opened with a password or passkey. */
  opened_by?: KeyId | null;
  /** The passkey that it was opened with, and ends with. */
  passkey_id?: PasskeyId | null;
  role: Role;
  /** Null: everything the role allows. */
  scopes?: Array<KeyScope> | null;
  session_id: KeyId;
  user_id?: UserId | null;
}

export interface ConsoleSessionList {
  next_cursor?: string | null;
  sessions: Array<ConsoleSession>;
}

export interface Conversation {
  conversation_id: ConversationId;
  created_at: Timestamp;
  metadata?: Json | null;
  title?: string | null;
  workspace_id: WorkspaceId;
}

export type ConversationId = string;

export interface ConversationList {
  conversations: Array<Conversation>;
  next_cursor?: string | null;
}

export interface ConversationMessage {
  author: string;
  created_at: Timestamp;
  /** `msg_…`, or the run's id with `/input` or `/result` for a run's messages. */
  message_id: string;
  metadata?: Json | null;
  role: MessageRole;
  task_run_id?: RunId | null;
  text: string;
}

/** The reliability of a usage figure. */
export type CostSource = "reported" | "estimated" | "unknown";

export interface CreateConversationRequest {
  /** The agent it is meant for, as in a call. If the agent is private, so is the conversation, from the beginning. */
  agent_type?: string | null;
  /** The session of that agent's host that its runs in this conversation continue: an id, or `last`. Only for the agent's
   * owner in person. A conversation that already continues it is returned. */
  host_session?: string | null;
  /** Any object. Its `instructions` are passed to the agents of this conversation. Its `permission_mode` applies to runs
   * for which none was chosen, if it is stricter than the agent's. */
  metadata?: Json | null;
  title?: string | null;
}

/** A worker asks for input. Unknown members are ignored. */
export interface CreateInputRequest {
  epoch?: number | null;
  parts?: Json | null;
  prompt: string;
  /** The worker's id for this question. Asking again with the same id returns the same request. */
  request_id?: string | null;
}

export interface CreateKeyRequest {
  /** A client certificate (PEM) that is the key's credential instead of a secret. The hub must request certificates. */
  certificate?: string | null;
  expires_at?: Timestamp | null;
  name: string;
  /** Default: `operator`. Never above the user's role. */
  role?: Role | null;
  /** Default: everything the role allows. */
  scopes?: Array<KeyScope> | null;
  /** The name or id of its user. Default: the caller's. */
  user?: string | null;
}

/** `POST /api/v1/notification-targets`. Everything it is notified of follows the rights of the key or session that creates
 * it, and it ends with that. */
export interface CreateNotificationTarget {
  address: NotificationAddress;
  choices?: NotificationChoices;
  /** Its display name, for example the device's name. */
  name: string;
}

/** A worker asks for permission for a risky step. Unknown members are ignored. */
export interface CreatePermissionRequest {
  /** What the device vouches for: `folder_edit`, `in_folder`, `walled`. Other words are ignored. */
  assured?: Array<string>;
  cwd?: string | null;
  /** The proposed change as a unified diff, if the agent provides it. */
  diff?: string | null;
  epoch?: number | null;
  /** The exact input. */
  input: Json;
  paths?: Array<string>;
  reason?: string | null;
  /** The worker's id for this request. Asking again with the same id returns the same request. Without an id, the
   * same question returns the pending request. */
  request_id?: string | null;
  /** A level such as `low`, `medium` or `high`. */
  risk?: string | null;
  /** The tool, process or action. */
  tool: string;
  /** What the agent doesn't disclose: `input`, `paths`. */
  undisclosed?: Array<string>;
}

export interface CreateRunRequest {
  /** The agent's id or name. */
  agent_id: string;
  allowed_tools?: Json | null;
  /** The most it may use. Without a budget, only quotas apply. */
  budget?: Budget | null;
  /** Other events to send to the callback: `approval`, when the run waits for a person's permission. */
  callback_events?: Array<CallbackEvent> | null;
  /** Called when the run has ended. */
  callback_url?: string | null;
  context_fragments?: Json | null;
  conversation_id?: ConversationId | null;
  /** The id or name of an agent that gets the task if this one's model account has reached a usage limit. For people and
   * their keys. */
  fallback_agent_id?: string | null;
  idempotency_key?: string | null;
  input?: Json | null;
  max_attempts?: number | null;
  parent_task_run_id?: RunId | null;
  /** Replaces the agent's permission mode for this run. Only callers who can change the agent's own can choose one that
   * isn't stricter. */
  permission_mode?: PermissionMode | null;
  /** Higher goes first. Default: 0. */
  priority?: number | null;
  queue_ttl_ms?: number | null;
  /** Limits that the worker must enforce, or refuse the run. */
  sandbox?: Sandbox | null;
  task_type?: string | null;
  timeout_ms?: number | null;
  workspace_root?: string | null;
  /** Let the run work in its own git worktree, on its own branch, instead of in the agent's folder. Only for callers who
   * can change the agent, if its device supports it. */
  worktree?: boolean;
}

/** `POST /api/v1/users`. */
export interface CreateUserRequest {
  /** The sign-in name, also used in access rules: letters, digits, `.`, `_` and `-`. */
  name: string;
  /** Without a password, the user signs in with login links only. */
  password?: string | null;
  /** Default: `operator`. */
  role?: Role | null;
}

/** The only response that contains the API key. */
export interface CreatedKey {
  /** Absent if the credential is a certificate. */
  api_key?: string | null;
  key: Key;
}

/** The owner decides about a worktree. */
export interface DecideWorktreeRequest {
  action: WorktreeAction;
  /** The message of a commit. Default: the run's id. */
  message?: string | null;
}

/** A run's worktree, as far as the hub knows. */
export interface DecidedWorktree {
  /** The newest one. */
  decision?: WorktreeDecision | null;
  task_run_id: RunId;
}

export interface DecisionRequest {
  approved: boolean;
  comment?: string | null;
  scope?: DecisionScope;
  this_channel_only?: boolean;
  /** With a scope other than `once`: covers every tool whose name matches (`*` matches any characters), whatever its
   * input. Without it, the grant covers only the same tool, input, cwd and paths. */
  tool_pattern?: string | null;
  until?: Timestamp | null;
}

/** How far a decision reaches beyond its own request. */
export type DecisionScope = "once" | "run" | "conversation" | "agent";

/** Where the decision came from. */
export type DecisionSource = "user" | "policy" | "mode" | "timeout";

/** An A2A extension that a runtime declares for its agent's card. */
export interface DeclaredExtension {
  /** Its parameters in the card, kept as sent. */
  params?: Json | null;
  uri: string;
}

/** `GET /api/v1/delegations/{id}/cancellation` of a hub: the request that its daemon waits for. */
export interface DelegationCancellation {
  cancel_requested: boolean;
}

export interface DelegationFailure {
  code: AwcpErrorCode;
  hint: string;
  message: string;
}

export type DelegationId = string;

/** How it ended: `result.json`. */
export interface DelegationOutcome {
  error?: DelegationFailure | null;
  final_summary?: string | null;
  /** Present if the summary is not exactly what the agent printed: the length of the complete output, and where the
   * remote keeps it. */
  full_output?: OutputLocation | null;
  highlights?: Array<string>;
  notes?: string | null;
}

/** `PUT /api/v1/delegations/{id}` of a hub: what its console shows. */
export interface DelegationProjection {
  access_mode: AccessMode;
  changes?: FolderChanges | null;
  created_at: Timestamp;
  description: string;
  /** The machine that delegates it. */
  device_name: string;
  ended_at?: Timestamp | null;
  expires_at?: Timestamp | null;
  /** The folder's name without its parent path. */
  folder: string;
  peer_url: string;
  progress?: string | null;
  result?: DelegationOutcome | null;
  status: DelegationStatus;
  waits_for?: string | null;
}

export type DelegationStatus = "created" | "invited" | "accepted" | "started" | "running" | "completed" | "error" | "cancelled" | "expired";

export interface Delivery {
  attempts: number;
  created_at: Timestamp;
  delivered_at?: Timestamp | null;
  delivery_id: DeliveryId;
  kind: DeliveryKind;
  last_attempt_at?: Timestamp | null;
  last_error?: string | null;
  /** The target's latest HTTP status. */
  last_status?: number | null;
  /** The time of the next attempt. */
  next_attempt_at?: Timestamp | null;
  permission_request_id?: PermissionId | null;
  state: DeliveryState;
  task_run_id: RunId;
  url: string;
}

export type DeliveryId = string;

/** The event being delivered. */
export type DeliveryKind = "run_ended" | "permission_requested" | "task_updated" | "notification";

export interface DeliveryList {
  deliveries: Array<Delivery>;
  next_cursor?: string | null;
}

/** `GET /api/v1/deliveries/secret`: the secret that signs the caller's deliveries. */
export interface DeliverySecret {
  secret: string;
}

export type DeliveryState = "pending" | "delivered" | "failed";

export interface DiffStat {
  deletions: number;
  files_changed: number;
  insertions: number;
}

export interface Envelope {
  header: EnvelopeHeader;
  metadata?: EnvelopeMetadata | null;
  /** An object whose `action` names the action. */
  payload: Json;
}

export interface EnvelopeHeader {
  from: string;
  msg_id: string;
  /** In a response: the request's `msg_id`. In an event: the `msg_id` of the request that created the run. */
  parent_id?: string | null;
  /** For a durable frame: its position among the sender's frames on this channel. */
  seq?: number | null;
  /** Unix seconds. */
  timestamp: number;
  to: string;
  type: FrameType;
}

export interface EnvelopeMetadata {
  /** `bearer …` */
  auth_token?: string | null;
  trace_id?: string | null;
  /** How many more hops the work may take. */
  ttl?: number | null;
}

/** The body of every error response. */
export interface ErrorBody {
  error: ErrorDetail;
}

export interface ErrorDetail {
  code: string;
  hint: string;
  message: string;
  /** The hint for programs, if it is one of a fixed set: `name_agent`, `create_token`, … */
  remedy?: string | null;
}

/** One event. `seq` starts at 1 and has no gaps within its stream. */
export interface Event {
  at: Timestamp;
  data: Json;
  seq: number;
  type: string;
}

export interface EventPage {
  events: Array<Event>;
  /** Pass it as `after` to continue. */
  next: number;
  /** The run's state when the page was read. */
  status: RunStatus;
}

export interface FailRequest {
  epoch?: number | null;
  /** What the agent got of the unsolicited input to the run. Whatever isn't listed is reported as undelivered. Without
   * the member, nothing is known about it. */
  inputs_taken?: Array<InputId> | null;
  /** `{"error","code"?}`. */
  output: Json;
  usage?: Json | null;
}

export type FileChangeKind = "added" | "modified" | "removed" | "attributes";

export interface FinishResponse {
  status: RunStatus;
  task_run_id: RunId;
}

/** The changes in the folder. Paths are relative to the folder. Bytes that are not UTF-8 are shown as `\xNN`. */
export interface FolderChanges {
  changed_paths: Array<ChangedPath>;
  diff_stat: DiffStat;
  /** `changed_paths` has only the first thousand. */
  truncated?: boolean;
}

export type FrameType = "request" | "response" | "notification" | "chunk";

/** Input from the caller: text, or parts such as `[{"text":"…"}]`. */
export interface GiveInputRequest {
  idempotency_key?: string | null;
  /** The question this answers, from the run's `waits_for`. Without it, the oldest open question is answered. With
   * it, only that question is answered: if it is no longer open, the input is rejected as `not_waiting`. */
  input_request_id?: WorkerRequestId | null;
  parts?: Json | null;
  text?: string | null;
  /** Tells the working agent something, and answers no question, even if one is open. */
  unsolicited?: boolean;
}

export interface GiveInputResponse {
  input_id: InputId;
  status: RunStatus;
  task_run_id: RunId;
}

export type GrantId = string;

export interface GrantList {
  next_cursor?: string | null;
  permission_grants: Array<PermissionGrant>;
}

export interface HeartbeatRequest {
  agent_id?: string | null;
  /** The A2A extensions the device supports. If absent, the previous list stays. */
  extensions?: Array<DeclaredExtension> | null;
  /** The sessions that the agent's host keeps for its working folder, newest first. Kept in memory, for the agent's
   * owner only. */
  host_sessions?: Array<HostSession>;
  /** The runs this runtime is executing. A runtime that only supports 002 omits it. */
  running?: Array<RunId> | null;
  /** The runtime stores and uses a new token if the response offers one. */
  token_rotation?: boolean;
  /** Of those, the runs that have ended on the device but whose outcome the hub has not accepted yet. */
  unreported?: Array<RunId>;
}

export interface HeartbeatResponse {
  /** Runs in the request that this runtime must stop working on. */
  cancelled: Array<RunId>;
  runtime_id: RuntimeId;
  /** The runtime's next token. The current one stays valid until this one is first used. */
  runtime_token?: string | null;
  server_time: Timestamp;
  status: Presence;
  /** Decisions about worktrees wait for the device: `GET …/agent-runtimes/runtime/worktree-decisions`. */
  worktree_decisions?: boolean;
}

/** A session that the host keeps for its working folder. */
export interface HostSession {
  /** The shell command that continues it in a terminal on the device. */
  command: string;
  /** The conversation whose runs continue it. Absent for a session that was only used in a terminal. */
  conversation_id?: ConversationId | null;
  /** The working folder on the device. */
  folder: string;
  /** The host's own id for it. */
  session_id: string;
  /** Its name, or the beginning of its first task. */
  title: string;
  updated_at: Timestamp;
}

/** What the host of an agent keeps, as its device last reported. Only the agent's owner sees it. */
export interface HostSessionList {
  /** Newest first. */
  host_sessions: Array<HostSession>;
  /** When the device last reported. Absent if it has not since the hub started. */
  reported_at?: Timestamp | null;
}

export interface HubHealth {
  /** What an acknowledged write survives: `power_loss` or `nothing` (the in-memory store). */
  durability: string;
  /** `ok`, or `degraded` while storage has a problem. */
  status: string;
  /** Whether it can be written to. `null` only from hubs that don't report it. */
  storage?: Storage | null;
  /** The storage engine, for display. */
  store: string;
  version: string;
}

/** The response to [`CreateInputRequest`] and to `GET …/input-requests/{ask}?wait_ms=`. */
export interface InputAnswer {
  input_request_id: WorkerRequestId;
  /** The A2A message it came in, unchanged. */
  message?: Json | null;
  /** The caller's input, unchanged. */
  parts?: Json | null;
  state: WorkerRequestState;
}

export type InputId = string;

/** The only response that contains the token. */
export interface IssuedToken {
  expires_at: Timestamp;
  token: string;
  /** Always `Bearer`. */
  token_type: string;
}

/** Any JSON, kept byte for byte. */
export type Json = unknown;

export interface Key {
  created_at: Timestamp;
  expires_at?: Timestamp | null;
  key_id: KeyId;
  name: string;
  revoked_at?: Timestamp | null;
  role: Role;
  /** Null: everything the role allows. */
  scopes?: Array<KeyScope> | null;
  /** Its user. Null for a key without a user. */
  user_id?: UserId | null;
}

export type KeyId = string;

export interface KeyList {
  api_keys: Array<Key>;
  next_cursor?: string | null;
}

/** A subset of a role's rights, for a restricted key. */
export type KeyScope = "read" | "call" | "decide" | "manage" | "admin";

/** `/.well-known/jwks.json` (RFC 7517). */
export interface KeySet {
  keys: Array<PublicKey>;
}

/** One row of a tenant's log. Serves as lifecycle event, audit record and feed item. */
export interface LogRow {
  /** Who caused it, as `kind:id`, for example `key:key_…`, `runtime:rtm_…` or `system`. */
  actor: string;
  at: Timestamp;
  data: Json;
  /** The BLAKE3 hash of withheld data, in hex. With it, the chain can be verified without the data. */
  data_digest?: string | null;
  /** The chain's hash up to and including this row, in hex. */
  hash: string;
  /** The event's seq in the run's own stream. */
  run_seq?: number | null;
  seq: number;
  task_run_id?: RunId | null;
  type: string;
  /** The data is withheld from this reader: it belongs to someone else's private agent. The hash covers the real data. */
  withheld?: boolean;
}

/** `POST /api/v1/login-links`: a one-time link that signs one browser in. */
export interface LoginLink {
  expires_at: Timestamp;
  role: Role;
  url: string;
  /** The user it signs in. Null for no user. */
  user_id?: UserId | null;
  user_name?: string | null;
}

/** `POST /api/v1/login-links`. */
export interface LoginLinkRequest {
  /** The name or id of the user to sign in. Default: the caller's. */
  user?: string | null;
}

export interface MessageList {
  messages: Array<ConversationMessage>;
  next_cursor?: string | null;
}

export type MessageRole = "user" | "agent";

/** The response of `GET /api/v1/names`. Unknown ids are left out. */
export interface NameList {
  names: Record<string, string>;
}

/** How to reach a target. */
export type NotificationAddress = {
  /** The `PushSubscription` of the browser. */
  endpoint: string;
  keys: WebPushKeys;
  service: "web_push";
} | {
  service: "slack";
  webhook_url: string;
} | {
  /** The Bot API server. Default: Telegram's own. */
  api_url?: string | null;
  bot_token: string;
  chat_id: number;
  service: "telegram";
} | {
  secret?: string | null;
  service: "feishu";
  webhook_url: string;
};

/** What a target is notified of, and how. */
export interface NotificationChoices {
  /** Requests and questions that its person may decide or answer. Default: yes. */
  approvals?: boolean;
  detail?: NotificationDetail;
  language?: NotificationLanguage;
  /** The end of runs that its person started. */
  runs?: boolean;
}

/** How much a notification shows to whoever looks at a locked screen. */
export type NotificationDetail = "title" | "full";

/** The language of notifications. */
export type NotificationLanguage = "en" | "zh";

/** What carries a notification. */
export type NotificationService = "web_push" | "slack" | "telegram" | "feishu";

/** Its secrets are never shown. */
export interface NotificationTarget {
  choices: NotificationChoices;
  created_at: Timestamp;
  /** Whether the caller's own session created it. */
  current: boolean;
  /** The key or session with whose rights it is notified, and with which it ends. */
  key_id: KeyId;
  name: string;
  notification_target_id: NotificationTargetId;
  /** Scheme, host and port. */
  origin: string;
  service: NotificationService;
  user_id?: UserId | null;
}

export type NotificationTargetId = string;

export interface NotificationTargetList {
  /** In order of creation. */
  notification_targets: Array<NotificationTarget>;
  /** The hub's public key for Web Push, base64url without padding: the `applicationServerKey` of a subscription. */
  web_push_key: string;
}

/** The result of `POST /api/v1/notification-targets/{target}/test`. */
export interface NotificationTest {
  delivered: boolean;
  error?: string | null;
  /** The service's HTTP status. */
  status?: number | null;
}

/** What becomes of a run when the model account of its agent reaches a usage limit. */
export type OnLimit = "wait" | "fallback" | "fail";

/** What happens if a request is not answered in time. */
export type OnTimeout = "deny_and_halt" | "deny_and_continue" | "keep_waiting";

/** Why an approval counts only for its own request, and no standing grant answers it. */
export type OnceReason = "hidden_input" | "private_agent" | "plan";

/** `PUT /api/v1/tunnels/{id}`. The host chooses the id and the token, so that it can open the same tunnel again after a
 * hub restart. The hub learns only the token's hash. */
export interface OpenTunnelRequest {
  /** The caller's live, published delegation that uses the tunnel. The tunnel ends with it. */
  delegation_id: DelegationId;
  expires_at: Timestamp;
  /** Both directions together. Default: the hub's own limit. */
  max_bytes?: number | null;
  /** SHA-256 of the remote's token, in hexadecimal. */
  token_sha256: string;
}

export interface OptionQuestion {
  /** A word or two, as a title. */
  header?: string | null;
  multi_select?: boolean;
  /** None: the answer is free text. */
  options?: Array<QuestionOption>;
  question: string;
}

export interface OutputLocation {
  /** The artifact that contains it, byte for byte. */
  artifact_id?: ArtifactId | null;
  /** The length of the complete output. */
  bytes: number;
  /** Why it was not kept. */
  lost?: string | null;
  /** The run that produced it, if not otherwise known. */
  task_run_id?: RunId | null;
}

/** The only response that contains the pairing code. */
export interface PairingCodeResponse {
  /** The hub's address for other machines. Null if only its own machine can reach it. */
  api_base?: string | null;
  expires_at: Timestamp;
  pairing_code: string;
  /** The pin of a hub with a self-signed certificate. */
  pin?: string | null;
}

/** `POST /api/v1/pairing-requests/{code}/decision`. */
export interface PairingDecision {
  /** The agent to pair the device with. Omit it to reject the device. */
  agent_id?: string | null;
}

export interface PairingPollRequest {
  poll_token: string;
}

/** A device without a code requests one to show: `POST …/runtime/pairing-requests`. */
export interface PairingRequest {
  device_name?: string | null;
  labels?: Json | null;
}

export interface PairingRequestResponse {
  /** Where a signed-in person confirms the code. */
  confirm_url: string;
  expires_at: Timestamp;
  pairing_code: string;
  poll_interval_ms: number;
  /** The token for polling `POST …/runtime/pairing-requests/poll` until a person has decided. */
  poll_token: string;
}

/** What a person sees before they confirm: `GET /api/v1/pairing-requests/{code}`. */
export interface PairingRequestView {
  /** The address of the device. */
  address: string;
  device_name?: string | null;
  expires_at: Timestamp;
  labels: Json;
}

export type PasskeyId = string;

/** The outside A2A agent that an account represents. */
export interface PeerInfo {
  /** The binding of its trusted card: `JSONRPC`, `HTTP+JSON` or `GRPC`, and the A2A version. */
  binding?: string | null;
  /** The pin of the trusted card. */
  card_pin?: string | null;
  has_key: boolean;
  /** The pin of a card waiting to be trusted (`POST …/trust`). No new work is sent until then. */
  offered_pin?: string | null;
  pinned_at?: Timestamp | null;
  /** Why it can't be used at the moment. */
  problem?: string | null;
  protocol_version?: string | null;
  url: string;
}

/** An outside A2A agent. */
export interface PeerRequest {
  /** The expected `sha256:…` pin of its card. Any other card is rejected. */
  card_pin?: string | null;
  /** The key to send to the agent. `""` removes it. Never shown again. */
  key?: string | null;
  /** Its origin, base URL or card URL, without a query. Put secrets into `key`. */
  url: string;
}

export type PeerRole = "client" | "host" | "worker" | "remote_runtime" | "peer_agent" | "tool_server";

/** The oldest question a run waits for. Text from the agent is untrusted: show it inert. */
export interface PendingQuestion {
  /** `prm_…` of a permission request, `ask_…` of a question. */
  id: string;
  /** `approval` is decided by a person, `input` is answered by the caller. */
  kind: WaitReason;
  /** The same question as a form, if the agent offered options. */
  questionnaire?: Questionnaire | null;
  /** The question, or the step to approve: `Bash: touch x`. */
  what: string;
}

/** A decision that the device is to carry out. */
export interface PendingWorktreeDecision {
  action: WorktreeAction;
  message?: string | null;
  /** Counts the decisions about this worktree. */
  number: number;
  task_run_id: RunId;
}

export interface PendingWorktreeDecisionList {
  worktree_decisions: Array<PendingWorktreeDecision>;
}

/** The response to [`CreatePermissionRequest`] and to `GET …/permission-requests/{prm}?wait_ms=`. */
export interface PermissionAnswer {
  /** Null while undecided. `false` if it expired or was cancelled. */
  approved?: boolean | null;
  comment?: string | null;
  permission_request_id: PermissionId;
  scope?: DecisionScope | null;
  state: PermissionState;
}

export interface PermissionGrant {
  agent_id: AgentId;
  approved: boolean;
  channel_id?: ChannelId | null;
  conversation_id?: ConversationId | null;
  created_at: Timestamp;
  created_by: string;
  /** When its run ended. */
  ended_at?: Timestamp | null;
  grant_id: GrantId;
  /** The request whose decision created it. */
  permission_request_id: PermissionId;
  revoked_at?: Timestamp | null;
  scope: DecisionScope;
  /** Hex. Null if the grant uses a pattern. */
  subject?: string | null;
  task_run_id?: RunId | null;
  tool_pattern?: string | null;
  until?: Timestamp | null;
}

export type PermissionId = string;

export interface PermissionList {
  next_cursor?: string | null;
  permission_requests: Array<PermissionRequest>;
}

/** Which steps of an agent need no approval by a person. */
export type PermissionMode = "plan_first" | "ask" | "accept_edits" | "accept_walled";

/** A permission request, for the people who decide. Text from the agent is untrusted data: show it inert. */
export interface PermissionRequest {
  agent_id: AgentId;
  agent_name: string;
  approved?: boolean | null;
  /** The channel it came over. Null over HTTP. */
  channel_id?: ChannelId | null;
  comment?: string | null;
  /** What an approval of it needs. */
  confirm_approvals?: ApprovalConfirmation;
  conversation_id: ConversationId;
  cwd?: string | null;
  decided_at?: Timestamp | null;
  /** Who decided, as `kind:id`. */
  decided_by?: string | null;
  decided_from?: string | null;
  /** The surface and address of the decision. */
  decided_via?: string | null;
  /** The proposed change as a unified diff, if the agent provides it. */
  diff?: string | null;
  epoch: number;
  expires_at?: Timestamp | null;
  /** The grant it created, or that answered it. */
  grant_id?: GrantId | null;
  input: Json;
  on_timeout: OnTimeout;
  /** Why an approval must have the scope `once`. Null if it may stand. */
  once?: OnceReason | null;
  paths: Array<string>;
  permission_request_id: PermissionId;
  reason?: string | null;
  requested_at: Timestamp;
  risk?: string | null;
  runtime_id: RuntimeId;
  scope?: DecisionScope | null;
  source?: DecisionSource | null;
  state: PermissionState;
  /** Hex hash of tool, input, cwd, paths, diff and undisclosed members. The decision is bound to it. */
  subject: string;
  task_run_id: RunId;
  this_channel_only: boolean;
  tool: string;
  tool_pattern?: string | null;
  /** What the agent doesn't disclose: `input`, `paths`. */
  undisclosed?: Array<string>;
  until?: Timestamp | null;
}

export type PermissionState = "pending" | "approved" | "denied" | "expired" | "cancelled";

export type Presence = "online" | "offline";

/** A worker's progress report. Each member that is present becomes one event, in this order. */
export interface ProgressRequest {
  /** An artifact the agent produced: `{"artifact_id","name"?,"parts","append"?,"last_chunk"?}`, kept as sent. The
   * parts are A2A 1.0 parts. */
  artifact?: Json | null;
  /** Partial text of the answer: a string, or `{"text"}`. */
  chunk?: Json | null;
  epoch?: number | null;
  /** A line of the host's log: a string, or `{"level","message"}`. */
  log?: Json | null;
  message?: string | null;
  percent?: number | null;
  /** The worker's sequence number of its reports on this claim, from 1. A repeated report is acknowledged and
   * ignored. Without it, a repeated report appears twice. */
  report?: number | null;
  thought?: Json | null;
  tool_call?: Json | null;
  usage?: Json | null;
}

export interface ProgressResponse {
  status: RunStatus;
}

/** An Ed25519 key (RFC 8037), which signs tokens, or a P-256 key, which signs cards. */
export interface PublicKey {
  alg: string;
  crv: string;
  kid: string;
  kty: string;
  use: string;
  /** The public key in base64url without padding. For P-256, its first coordinate. */
  x: string;
  y?: string | null;
}

/** An item of `GET /api/v1/delegations`, and the response to publishing one. */
export type PublishedDelegation = DelegationProjection & {
  /** A person at the hub asked to end it. Its daemon will do so. */
  cancel_requested: boolean;
  delegation_id: DelegationId;
  /** Who published it. */
  owner: string;
  updated_at: Timestamp;
};

/** `GET /api/v1/delegations` of a hub, newest first. */
export interface PublishedDelegationList {
  delegations: Array<PublishedDelegation>;
  next_cursor?: string | null;
}

export interface PullResponse {
  task_run?: ClaimedRun | null;
}

export interface QuestionOption {
  description?: string | null;
  label: string;
}

/** What an agent asks at once. */
export interface Questionnaire {
  questions: Array<OptionQuestion>;
}

export interface Quota {
  agent_id?: AgentId | null;
  agent_name?: string | null;
  calls?: number | null;
  cost_usd?: Json | null;
  /** Reserved for runs in progress. */
  held: UsageAmounts;
  resets_at: Timestamp;
  /** Today so far. */
  spent: UsageAmounts;
  tokens?: number | null;
  user_id?: UserId | null;
  user_name?: string | null;
}

export interface QuotaList {
  /** Always null: a hub has few of them. */
  next_cursor?: string | null;
  quotas: Array<Quota>;
}

export type Recovery = "remote_running" | "remote_idle" | "remote_waiting" | "done_unreconciled" | "remote_missing" | "unreachable";

/** `POST /api/a2a/register`. Unknown members are ignored. */
export interface RegisterAgent {
  agent_id?: string | null;
  capabilities?: Json | null;
  device_info?: Json | null;
  pairing_token?: string | null;
  url?: string | null;
}

/** The only response that contains the agent's key. */
export interface RegisteredAgent {
  account_id: AgentId;
  /** The name as requested. */
  agent_id: string;
  api_key: string;
}

export interface ReleaseRequest {
  epoch: number;
}

/** A person's role. The access table is in `hub::identity`. */
export type Role = "viewer" | "operator" | "admin" | "owner";

/** A run. */
export interface Run {
  agent_id: AgentId;
  agent_name: string;
  attempt: number;
  /** The caller, as `kind:id`. */
  caller: string;
  claimed_at?: Timestamp | null;
  /** The run that this one continues, because that one's agent had reached a usage limit. */
  continues?: RunId | null;
  conversation_id: ConversationId;
  created_at: Timestamp;
  /** When a pending run goes back to the queue, because the usage limit that it reached resets then. Nobody can claim it before. */
  deferred_until?: Timestamp | null;
  ended_at?: Timestamp | null;
  epoch: number;
  /** When a pending run expires. */
  expires_at?: Timestamp | null;
  input: Json;
  /** The seq of the newest event in `/events`. */
  last_seq: number;
  lease_expires_at?: Timestamp | null;
  max_attempts: number;
  parent_task_run_id?: RunId | null;
  /** The permission mode that replaces the agent's, or `plan_first` if that was the agent's. */
  permission_mode?: PermissionMode | null;
  priority: number;
  /** The state of the work on the device, while the run is claimed. */
  recovery?: Recovery | null;
  runtime_id?: RuntimeId | null;
  /** The limits its caller required. */
  sandbox?: Sandbox | null;
  status: RunStatus;
  /** The output of a completed run, or `{"error","code","native_code"?}` of a failed one. Null before the end. */
  task_result?: Json | null;
  task_run_id: RunId;
  task_type: string;
  timeout_ms: number;
  trace_id?: string | null;
  /** The run's total so far. */
  usage?: Json | null;
  /** The reliability of the usage. Null before anything was reported. */
  usage_source?: CostSource | null;
  /** The person it was created for, if known. */
  user_id?: UserId | null;
  waiting?: WaitReason | null;
  /** What it waits for. Only when reading a single run, not in lists. */
  waits_for?: PendingQuestion | null;
  workspace_id: WorkspaceId;
  /** Whether it works in its own git worktree, on its own branch, instead of in the agent's folder. */
  worktree?: boolean;
}

/** 409: includes the run's current state. */
export interface RunConflict {
  error: ErrorDetail;
  task_run: Run;
}

export type RunId = string;

export interface RunList {
  next_cursor?: string | null;
  task_runs: Array<Run>;
}

/** A run's public status. */
export type RunStatus = "pending" | "running" | "completed" | "failed" | "cancelled";

export interface RunView {
  filter: RunViewFilter;
  name: string;
}

/** Which runs a view shows. Every given member must match; at least one must be given. */
export interface RunViewFilter {
  /** Runs of this agent, by name or id. */
  agent?: string | null;
  /** Runs created by this person or agent, by name or id. */
  caller?: string | null;
  /** Runs that cost at least this many dollars, as text. */
  min_cost_usd?: string | null;
  /** Runs created within this time. */
  since?: RunViewPeriod | null;
  status?: RunViewStatus | null;
  /** Runs whose task, id, agent's name or caller contains this text. */
  text?: string | null;
}

export interface RunViewList {
  run_views: Array<RunView>;
}

/** How old a run may be. */
export type RunViewPeriod = "1d" | "7d" | "30d";

export type RunViewStatus = "pending" | "running" | "waiting" | "completed" | "failed" | "cancelled";

export interface Runtime {
  agent_id: AgentId;
  attached_at: Timestamp;
  device_name?: string | null;
  ended_at?: Timestamp | null;
  /** The extensions it declares. Shown in the agent's card. */
  extensions?: Array<DeclaredExtension>;
  /** Opaque to the hub, except that `host_type` is shown to people. */
  labels: Json;
  last_heartbeat_at?: Timestamp | null;
  runtime_id: RuntimeId;
  state: RuntimeState;
  status: Presence;
  /** When a replaced token was last used, which means that someone else has a copy of it. */
  token_reused_at?: Timestamp | null;
  /** Since when its current token has been in use. Absent until the first rotation. */
  token_rotated_at?: Timestamp | null;
}

export type RuntimeId = string;

export interface RuntimeList {
  agent_runtimes: Array<Runtime>;
  next_cursor?: string | null;
}

export type RuntimeState = "active" | "superseded" | "revoked";

/** Limits on what a run may do. An absent member is not limited. */
export interface Sandbox {
  /** False: can't run programs. */
  allow_exec?: boolean | null;
  /** False: no network. */
  allow_network?: boolean | null;
  /** True: no access to files outside the working folder. */
  cwd_only?: boolean | null;
}

/** `PUT /api/v1/permission-rules`. */
export interface SetAccessRules {
  text: string;
  version?: number | null;
}

/** `PUT /api/v1/quotas`: daily limits (UTC) for a user, an agent, a user with an agent, or the entire tenant. An absent
 * limit means unlimited. Without any limits, the quota is removed. */
export interface SetQuotaRequest {
  /** An agent's name or id. */
  agent?: string | null;
  calls?: number | null;
  /** Dollars. */
  cost_usd?: Json | null;
  tokens?: number | null;
  /** A user's name or id. */
  user?: string | null;
}

/** The device reports what it made of a decision. Unknown members are ignored. */
export interface SettleWorktreeRequest {
  /** The decision's number. */
  number: number;
  outcome: WorktreeOutcome;
}

/** A skill the agent offers. */
export interface Skill {
  description?: string;
  id: string;
  name: string;
  tags?: Array<string>;
}

/** Whether the hub can store data now. */
export type Storage = "ok" | "disk_low" | "disk_full" | "read_only" | "failed" | "slow" | "unreachable" | "served_elsewhere";

export type Timestamp = string;

/** `POST /api/v1/tokens`: creates a JWT with the rights of the caller's key, or fewer. */
export interface TokenRequest {
  /** The audience (`aud`). Default: the hub's own URL. The hub accepts only tokens for itself. */
  audience?: string | null;
  /** A subset of the key's own scopes. */
  scopes?: Array<KeyScope> | null;
  /** At most 3600. Default: 900. */
  ttl_seconds?: number | null;
}

export type Transport = "websocket" | "sse" | "json_rpc" | "grpc" | "http_json" | "stdio" | "in_process" | "custom";

/** The body of `POST /api/v1/agent-accounts/{agent}/trust`. */
export interface TrustRequest {
  /** The `sha256:…` pin of the card you checked, so that a newer one is not trusted by accident. */
  card_pin?: string | null;
}

export interface Tunnel {
  delegation_id: DelegationId;
  expires_at: Timestamp;
  max_bytes: number;
  open_connections: number;
  relayed_bytes: number;
  tunnel_id: TunnelId;
  /** Where both ends open their WebSockets: the remote with `Authorization: Bearer <token>`, the host with its own
   * key and `?end=host`, keeping one socket waiting for the next connection. */
  url: string;
}

export type TunnelId = string;

/** `PATCH /api/v1/notification-targets/{target}`. */
export interface UpdateNotificationTarget {
  choices: NotificationChoices;
}

/** `PATCH /api/v1/users/{user}`. Absent members stay unchanged. */
export interface UpdateUserRequest {
  /** Required when people change their own password. */
  current_password?: string | null;
  name?: string | null;
  /** Ends all of the user's sessions. */
  password?: string | null;
  role?: Role | null;
}

/** An amount of each measure. */
export interface UsageAmounts {
  calls: number;
  /** Dollars. */
  cost_usd: Json;
  tokens: number;
}

/** The usage of one call, as in `GET /api/v1/usage/records`. */
export interface UsageRecord {
  /** Null if the call is to a private agent and hidden from you. */
  call_id?: string | null;
  /** The agent's name. */
  callee: string;
  /** The caller, as `kind:id`. For a hidden call, the person it was made for. */
  caller: string;
  /** Dollars. */
  cost?: Json | null;
  cost_source: CostSource;
  duration_ms: number;
  tokens?: number | null;
}

export interface UsageRecordList {
  next_cursor?: string | null;
  usage_records: Array<UsageRecord>;
}

/** `GET /api/v1/usage?from=&to=`. */
export interface UsageReport {
  from: string;
  rows: Array<UsageRow>;
  to: string;
}

/** The usage of one user with one agent on one day. */
export interface UsageRow {
  agent_id: AgentId;
  agent_name: string;
  calls: number;
  cost_usd: Json;
  /** `2026-11-15`, in UTC. */
  day: string;
  duration_ms: number;
  estimated: number;
  /** How many of them did not complete. */
  failed: number;
  /** How many calls reported their usage, had it estimated, or reported nothing. */
  reported: number;
  tokens: number;
  unknown: number;
  user_id?: UserId | null;
  user_name?: string | null;
}

export interface User {
  created_at: Timestamp;
  has_password: boolean;
  name: string;
  removed_at?: Timestamp | null;
  role: Role;
  user_id: UserId;
}

export type UserId = string;

export interface UserList {
  next_cursor?: string | null;
  users: Array<User>;
}

/** Why a running run is paused. An approval takes precedence over input, because it is more urgent. */
export type WaitReason = "input" | "approval";

/** The browser's half of the encryption, base64url without padding. */
export interface WebPushKeys {
  auth: string;
  p256dh: string;
}

export type WorkerRequestId = string;

export type WorkerRequestState = "pending" | "answered" | "expired" | "cancelled";

export interface WorkspaceArtifact {
  artifact_id: ArtifactId;
  /** Hex of the content's blake3 hash. */
  blake3: string;
  created_at: Timestamp;
  media_type: string;
  name: string;
  /** The run that produced it, once that run has referenced it in its result. */
  produced_by?: RunId | null;
  size: number;
  workspace_id: WorkspaceId;
}

export type WorkspaceId = string;

export type WorktreeAction = "commit" | "apply" | "discard";

export interface WorktreeDecision {
  action: WorktreeAction;
  decided_at: Timestamp;
  /** The actor who decided, as in the audit log. */
  decided_by: string;
  outcome?: WorktreeOutcome | null;
  /** When the device answered. */
  settled_at?: Timestamp | null;
  state: WorktreeDecisionState;
}

export type WorktreeDecisionState = "pending" | "settled" | "unanswered";

/** What the device did. Unknown members are ignored. */
export interface WorktreeOutcome {
  /** The run's branch. */
  branch?: string | null;
  /** The commit that was made. */
  commit?: string | null;
  /** The files that were applied, or that conflict. */
  files?: Array<string>;
  /** The folder that the worktree was made from. */
  folder?: string | null;
  /** What went wrong, as the device says it. */
  message?: string | null;
  result: WorktreeResult;
}

/** What a decision came to. */
export type WorktreeResult = "done" | "unchanged" | "conflict" | "busy" | "absent" | "failed";

/** Every endpoint of the hub. */
export interface Operations {
  /** Read the public keys that verify the hub's tokens and agent cards */
  "GET /.well-known/jwks.json": {
    response: KeySet;
  };
  /** Call an agent; the work continues after the response */
  "POST /api/a2a/call": {
    body: CallRequest;
    response: CallStarted;
  };
  /** Register an agent by name and get its API key */
  "POST /api/a2a/register": {
    body: RegisterAgent;
    response: RegisteredAgent;
  };
  /** Read the result of a call, or its state if there is none in time */
  "GET /api/a2a/result/{call}": {
    path: {
      call: string;
    };
    query: {
      /** How long to wait for the result in milliseconds, at most 60000. Default: return immediately. */
      wait_ms?: number;
    };
    response: CallResult;
  };
  /** Call an agent in the form of a header and a task */
  "POST /api/a2a/v1/tasks": {
    body: CallTaskRequest;
    response: CallTask;
  };
  /** Read a task and its result */
  "GET /api/a2a/v1/tasks/{call}": {
    path: {
      call: string;
    };
    response: CallTask;
  };
  /** Send one envelope; its response frames are server-sent events */
  "POST /api/envelope": {
    body: Envelope;
    response: Envelope;
  };
  /** List agent accounts, by name */
  "GET /api/v1/agent-accounts": {
    query: {
      /** Page size, 1 to 200. Default: 50. */
      limit?: number;
      /** The `next_cursor` of the previous page. */
      cursor?: string;
    };
    response: AccountList;
  };
  /** Create an agent account */
  "POST /api/v1/agent-accounts": {
    body: AccountRequest;
    response: Account;
  };
  /** Read an agent account, by id or name */
  "GET /api/v1/agent-accounts/{agent}": {
    path: {
      agent: string;
    };
    response: Account;
  };
  /** Archive an agent account: its device is disconnected and its live runs are cancelled */
  "DELETE /api/v1/agent-accounts/{agent}": {
    path: {
      agent: string;
    };
    response: Account;
  };
  /** Change an agent account; absent members stay unchanged */
  "PATCH /api/v1/agent-accounts/{agent}": {
    path: {
      agent: string;
    };
    body: AccountRequest;
    response: Account;
  };
  /** List the sessions that an agent's host keeps for its working folder, newest first */
  "GET /api/v1/agent-accounts/{agent}/host-sessions": {
    path: {
      agent: string;
    };
    response: HostSessionList;
  };
  /** Create a pairing code for an agent; only this response contains it */
  "POST /api/v1/agent-accounts/{agent}/pairing-codes": {
    path: {
      agent: string;
    };
    response: PairingCodeResponse;
  };
  /** Claim the next run for the runtime's agent */
  "POST /api/v1/agent-accounts/{agent}/task-runs/pull": {
    path: {
      agent: string;
    };
    query: {
      /** How long to wait for a run in milliseconds, at most 60000. Default: return immediately. */
      wait_ms?: number;
      /** The run limits that the device enforces, comma-separated: `cwd_only`, `no_network`, `no_exec`. A run that
       * requires any other limit ends as `refused`. */
      enforces?: string;
    };
    response: PullResponse;
  };
  /** Trust the current card of an outside agent after it changed */
  "POST /api/v1/agent-accounts/{agent}/trust": {
    path: {
      agent: string;
    };
    body: TrustRequest;
    response: Account;
  };
  /** List runtimes, newest first */
  "GET /api/v1/agent-runtimes": {
    query: {
      /** Only devices of this agent, by id or name. */
      agent_id?: string;
      limit?: number;
      cursor?: string;
    };
    response: RuntimeList;
  };
  /** Redeem a pairing code; the device becomes the agent's runtime */
  "POST /api/v1/agent-runtimes/runtime/attach-via-pairing": {
    body: AttachRequest;
    response: AttachResponse;
  };
  /** Report that the device is alive and which runs it executes */
  "POST /api/v1/agent-runtimes/runtime/heartbeat": {
    body: HeartbeatRequest;
    response: HeartbeatResponse;
  };
  /** Request a code to show on a device, for a person to confirm */
  "POST /api/v1/agent-runtimes/runtime/pairing-requests": {
    body: PairingRequest;
    response: PairingRequestResponse;
  };
  /** Poll whether a person has confirmed the device; 202 until then */
  "POST /api/v1/agent-runtimes/runtime/pairing-requests/poll": {
    body: PairingPollRequest;
    response: AttachResponse | ErrorBody;
  };
  /** List the decisions about worktrees that the device is to carry out */
  "GET /api/v1/agent-runtimes/runtime/worktree-decisions": {
    response: PendingWorktreeDecisionList;
  };
  /** Read a runtime */
  "GET /api/v1/agent-runtimes/{runtime}": {
    path: {
      runtime: string;
    };
    response: Runtime;
  };
  /** Revoke a runtime: its token stops working and its claims are lost */
  "DELETE /api/v1/agent-runtimes/{runtime}": {
    path: {
      runtime: string;
    };
    response: Runtime;
  };
  /** List API keys, newest first */
  "GET /api/v1/api-keys": {
    query: {
      /** Page size, 1 to 200. Default: 50. */
      limit?: number;
      /** The `next_cursor` of the previous page. */
      cursor?: string;
    };
    response: KeyList;
  };
  /** Create an API key; only this response contains it */
  "POST /api/v1/api-keys": {
    body: CreateKeyRequest;
    response: CreatedKey;
  };
  /** Revoke an API key */
  "DELETE /api/v1/api-keys/{key}": {
    path: {
      key: string;
    };
    response: Key;
  };
  /** Download an artifact: all bytes, a byte range, or its metadata with `Accept: application/json` */
  "GET /api/v1/artifacts/{artifact}": {
    path: {
      artifact: string;
    };
    query: {
      /** `1` returns the metadata instead of the bytes. */
      meta?: number;
    };
    response: WorkspaceArtifact;
  };
  /** Read the tenant's log: a page as JSON, or a live feed with `Accept: text/event-stream` */
  "GET /api/v1/audit": {
    query: {
      /** Only events after this seq. For a stream, `Last-Event-ID` takes precedence. */
      after?: number;
      limit?: number;
    };
    response: AuditPage;
  };
  /** List channels, newest first */
  "GET /api/v1/channels": {
    query: {
      status?: ConnectionState;
      /** Only channels that work for this agent, by id or name. */
      agent_id?: string;
      limit?: number;
      cursor?: string;
    };
    response: ChannelList;
  };
  /** Read a channel */
  "GET /api/v1/channels/{channel}": {
    path: {
      channel: string;
    };
    response: Channel;
  };
  /** Read a channel's events: a page as JSON, or a live stream with `Accept: text/event-stream` */
  "GET /api/v1/channels/{channel}/events": {
    path: {
      channel: string;
    };
    query: {
      /** Only events after this seq. For a stream, `Last-Event-ID` takes precedence. */
      after?: number;
      limit?: number;
    };
    response: ChannelEventPage;
  };
  /** List conversations, newest first */
  "GET /api/v1/conversations": {
    query: {
      /** Page size, 1 to 200. Default: 50. */
      limit?: number;
      /** The `next_cursor` of the previous page. */
      cursor?: string;
    };
    response: ConversationList;
  };
  /** Create a conversation */
  "POST /api/v1/conversations": {
    body: CreateConversationRequest;
    response: Conversation;
  };
  /** Read a conversation */
  "GET /api/v1/conversations/{conversation}": {
    path: {
      conversation: string;
    };
    response: Conversation;
  };
  /** Delete a conversation */
  "DELETE /api/v1/conversations/{conversation}": {
    path: {
      conversation: string;
    };
    response: undefined;
  };
  /** List messages, oldest first, including the inputs and results of runs */
  "GET /api/v1/conversations/{conversation}/messages": {
    path: {
      conversation: string;
    };
    query: {
      /** Page size, 1 to 200. Default: 50. */
      limit?: number;
      /** The `next_cursor` of the previous page. */
      cursor?: string;
    };
    response: MessageList;
  };
  /** Add a message; it does not start a run */
  "POST /api/v1/conversations/{conversation}/messages": {
    path: {
      conversation: string;
    };
    body: AddMessageRequest;
    response: ConversationMessage;
  };
  /** List delegations, newest first */
  "GET /api/v1/delegations": {
    query: {
      /** Page size, 1 to 200. Default: 50. */
      limit?: number;
      /** The `next_cursor` of the previous page. */
      cursor?: string;
    };
    response: PublishedDelegationList;
  };
  /** Read a delegation */
  "GET /api/v1/delegations/{delegation}": {
    path: {
      delegation: string;
    };
    response: PublishedDelegation;
  };
  /** Publish the state of one of your delegations */
  "PUT /api/v1/delegations/{delegation}": {
    path: {
      delegation: string;
    };
    body: DelegationProjection;
    response: PublishedDelegation;
  };
  /** Ask the daemon to end a delegation */
  "POST /api/v1/delegations/{delegation}/cancel": {
    path: {
      delegation: string;
    };
    response: PublishedDelegation;
  };
  /** Wait for a request to end one of your delegations */
  "GET /api/v1/delegations/{delegation}/cancellation": {
    path: {
      delegation: string;
    };
    query: {
      /** How long to wait for a request to end it, at most a minute. */
      wait_ms?: number;
    };
    response: DelegationCancellation;
  };
  /** List deliveries, newest first */
  "GET /api/v1/deliveries": {
    query: {
      state?: DeliveryState;
      task_run_id?: RunId;
      limit?: number;
      cursor?: string;
    };
    response: DeliveryList;
  };
  /** Read the secret that signs the caller's deliveries */
  "GET /api/v1/deliveries/secret": {
    query: {
      /** Return the secret of this agent's approval webhook instead of the caller's own. */
      agent_id?: string;
    };
    response: DeliverySecret;
  };
  /** Read a delivery */
  "GET /api/v1/deliveries/{delivery}": {
    path: {
      delivery: string;
    };
    response: Delivery;
  };
  /** Send a delivery again now, with the same id */
  "POST /api/v1/deliveries/{delivery}/resend": {
    path: {
      delivery: string;
    };
    response: Delivery;
  };
  /** Create a one-time login link for one browser */
  "POST /api/v1/login-links": {
    body: LoginLinkRequest;
    response: LoginLink;
  };
  /** Look up display names by id */
  "GET /api/v1/names": {
    query: {
      /** Ids or actors (`rtm_…`, `agt_…`, `usr_…`, `key:key_…`), comma-separated, at most 200. */
      ids?: string;
    };
    response: NameList;
  };
  /** List the caller's notification targets, in order of creation */
  "GET /api/v1/notification-targets": {
    response: NotificationTargetList;
  };
  /** Add a notification target */
  "POST /api/v1/notification-targets": {
    body: CreateNotificationTarget;
    response: NotificationTarget;
  };
  /** Remove a notification target */
  "DELETE /api/v1/notification-targets/{target}": {
    path: {
      target: string;
    };
    response: undefined;
  };
  /** Change what a target is notified of */
  "PATCH /api/v1/notification-targets/{target}": {
    path: {
      target: string;
    };
    body: UpdateNotificationTarget;
    response: NotificationTarget;
  };
  /** Send a test to a target, and return what its service said */
  "POST /api/v1/notification-targets/{target}/test": {
    path: {
      target: string;
    };
    response: NotificationTest;
  };
  /** Read this document */
  "GET /api/v1/openapi.json": {
    response: Json;
  };
  /** Show the device behind a code */
  "GET /api/v1/pairing-requests/{code}": {
    path: {
      code: string;
    };
    response: PairingRequestView;
  };
  /** Confirm a device for an agent, or reject it */
  "POST /api/v1/pairing-requests/{code}/decision": {
    path: {
      code: string;
    };
    body: PairingDecision;
    response: undefined;
  };
  /** List standing grants and denials, newest first */
  "GET /api/v1/permission-grants": {
    query: {
      /** Page size, 1 to 200. Default: 50. */
      limit?: number;
      /** The `next_cursor` of the previous page. */
      cursor?: string;
    };
    response: GrantList;
  };
  /** Revoke a grant: it stops answering requests */
  "DELETE /api/v1/permission-grants/{grant}": {
    path: {
      grant: string;
    };
    response: PermissionGrant;
  };
  /** List permission requests, newest first */
  "GET /api/v1/permission-requests": {
    query: {
      state?: PermissionState;
      task_run_id?: RunId;
      /** Only requests of this agent, by id or name. */
      agent_id?: string;
      limit?: number;
      cursor?: string;
    };
    response: PermissionList;
  };
  /** Read a permission request */
  "GET /api/v1/permission-requests/{permission}": {
    path: {
      permission: string;
    };
    response: PermissionRequest;
  };
  /** Decide a permission request; the first decision is final */
  "POST /api/v1/permission-requests/{permission}/decision": {
    path: {
      permission: string;
    };
    body: DecisionRequest;
    response: PermissionRequest;
  };
  /** Read the current access rules */
  "GET /api/v1/permission-rules": {
    response: AccessRules;
  };
  /** Replace all access rules */
  "PUT /api/v1/permission-rules": {
    body: SetAccessRules;
    response: AccessRules;
  };
  /** Check what the current rules decide about an agent and an object, and why */
  "POST /api/v1/permission-rules/check": {
    body: CheckAccess;
    response: AccessDecision;
  };
  /** List quotas with today's usage */
  "GET /api/v1/quotas": {
    response: QuotaList;
  };
  /** Set the quota of a user, an agent, a user with an agent, or the entire hub */
  "PUT /api/v1/quotas": {
    body: SetQuotaRequest;
    response: Quota | undefined;
  };
  /** List your own views of the list of runs, in the order in which they were made */
  "GET /api/v1/run-views": {
    response: RunViewList;
  };
  /** Save a view under a name, or replace the one that has it */
  "PUT /api/v1/run-views/{name}": {
    path: {
      name: string;
    };
    body: RunViewFilter;
    response: RunView;
  };
  /** Remove a view */
  "DELETE /api/v1/run-views/{name}": {
    path: {
      name: string;
    };
    response: undefined;
  };
  /** List console sessions, newest first */
  "GET /api/v1/sessions": {
    query: {
      /** Page size, 1 to 200. Default: 50. */
      limit?: number;
      /** The `next_cursor` of the previous page. */
      cursor?: string;
    };
    response: ConsoleSessionList;
  };
  /** End a console session and all sessions opened from it */
  "DELETE /api/v1/sessions/{session}": {
    path: {
      session: string;
    };
    response: ConsoleSession;
  };
  /** List runs, newest first */
  "GET /api/v1/task-runs": {
    query: {
      status?: RunStatus;
      /** Only runs of this agent, by id or name. */
      agent_id?: string;
      conversation_id?: ConversationId;
      parent_task_run_id?: RunId;
      /** Only runs that wait for a person: for an approval or for input. */
      waiting?: boolean;
      /** Only runs created at this time or later. */
      since?: Timestamp;
      /** Only runs created before this time. */
      before?: Timestamp;
      /** Only runs that cost at least this many dollars. */
      min_cost_usd?: number;
      /** Only runs created by this person or agent, by name or id. */
      caller?: string;
      /** Only runs whose task, id, agent's name or caller contains this text, ignoring case. Of a task, the first 16 KiB
       * are searched. */
      text?: string;
      limit?: number;
      cursor?: string;
    };
    response: RunList;
  };
  /** Create a run for an agent */
  "POST /api/v1/task-runs": {
    body: CreateRunRequest;
    response: Run;
  };
  /** Read a run */
  "GET /api/v1/task-runs/{run}": {
    path: {
      run: string;
    };
    response: Run;
  };
  /** Delete a run that has ended */
  "DELETE /api/v1/task-runs/{run}": {
    path: {
      run: string;
    };
    response: undefined;
  };
  /** Cancel a run immediately */
  "POST /api/v1/task-runs/{run}/cancel": {
    path: {
      run: string;
    };
    body: CancelRequest;
    response: Run;
  };
  /** Complete a run with its output; safe to repeat */
  "POST /api/v1/task-runs/{run}/complete": {
    path: {
      run: string;
    };
    body: CompleteRequest;
    response: FinishResponse;
  };
  /** Read a run's events: a page as JSON, or a live stream with `Accept: text/event-stream` */
  "GET /api/v1/task-runs/{run}/events": {
    path: {
      run: string;
    };
    query: {
      /** Only events after this seq. For a stream, `Last-Event-ID` takes precedence. */
      after?: number;
      limit?: number;
    };
    response: EventPage;
  };
  /** Fail a run with an error */
  "POST /api/v1/task-runs/{run}/fail": {
    path: {
      run: string;
    };
    body: FailRequest;
    response: FinishResponse;
  };
  /** Send input to a run: text or parts */
  "POST /api/v1/task-runs/{run}/input": {
    path: {
      run: string;
    };
    body: GiveInputRequest;
    response: GiveInputResponse;
  };
  /** Ask the caller for input; the run waits for the answer */
  "POST /api/v1/task-runs/{run}/input-requests": {
    path: {
      run: string;
    };
    body: CreateInputRequest;
    response: InputAnswer;
  };
  /** Wait for the answer to an input request */
  "GET /api/v1/task-runs/{run}/input-requests/{ask}": {
    path: {
      run: string;
      ask: string;
    };
    query: {
      /** How long to wait for an answer in milliseconds, at most 60000. Default: return immediately. */
      wait_ms?: number;
    };
    response: InputAnswer;
  };
  /** Ask for permission for a risky step; the run waits for a decision */
  "POST /api/v1/task-runs/{run}/permission-requests": {
    path: {
      run: string;
    };
    body: CreatePermissionRequest;
    response: PermissionAnswer;
  };
  /** Wait for the decision on a permission request */
  "GET /api/v1/task-runs/{run}/permission-requests/{permission}": {
    path: {
      run: string;
      permission: string;
    };
    query: {
      /** How long to wait for an answer in milliseconds, at most 60000. Default: return immediately. */
      wait_ms?: number;
    };
    response: PermissionAnswer;
  };
  /** Report progress, which also renews the claim */
  "POST /api/v1/task-runs/{run}/progress": {
    path: {
      run: string;
    };
    body: ProgressRequest;
    response: ProgressResponse;
  };
  /** Release a run before work has started; no attempt is used */
  "POST /api/v1/task-runs/{run}/release": {
    path: {
      run: string;
    };
    body: ReleaseRequest;
    response: Run;
  };
  /** Read what was decided about a run's worktree, or wait for the device's answer */
  "GET /api/v1/task-runs/{run}/worktree": {
    path: {
      run: string;
    };
    query: {
      /** How long to wait for an answer in milliseconds, at most 60000. Default: return immediately. */
      wait_ms?: number;
    };
    response: DecidedWorktree;
  };
  /** Have the agent's device commit, apply or discard a run's worktree */
  "POST /api/v1/task-runs/{run}/worktree": {
    path: {
      run: string;
    };
    body: DecideWorktreeRequest;
    response: DecidedWorktree;
  };
  /** Report what the device made of a decision about a worktree; safe to repeat */
  "POST /api/v1/task-runs/{run}/worktree/outcome": {
    path: {
      run: string;
    };
    body: SettleWorktreeRequest;
    response: undefined;
  };
  /** Create a short-lived token (JWT) with the rights of the caller's key, or fewer */
  "POST /api/v1/tokens": {
    body: TokenRequest;
    response: IssuedToken;
  };
  /** Read one of your tunnels; as a WebSocket, connect one of its two ends */
  "GET /api/v1/tunnels/{tunnel}": {
    path: {
      tunnel: string;
    };
    query: {
      /** `host`: this WebSocket belongs to the tunnel's owner and waits for a remote. */
      end?: string;
    };
    response: Tunnel;
  };
  /** Open a tunnel with an id you choose, or renew it */
  "PUT /api/v1/tunnels/{tunnel}": {
    path: {
      tunnel: string;
    };
    body: OpenTunnelRequest;
    response: Tunnel;
  };
  /** Close a tunnel: all of its connections are cut immediately */
  "DELETE /api/v1/tunnels/{tunnel}": {
    path: {
      tunnel: string;
    };
    response: undefined;
  };
  /** Read usage by day, user and agent */
  "GET /api/v1/usage": {
    query: {
      /** The first day, as 2026-11-15. Default: 30 days before the last. */
      from?: string;
      /** The last day. Default: today. */
      to?: string;
    };
    response: UsageReport;
  };
  /** List the usage of each call, newest first */
  "GET /api/v1/usage/records": {
    query: {
      /** Only calls of this agent, by id or name. */
      agent?: string;
      /** Only calls made for this user, by id or name. */
      user?: string;
      /** Only calls made on this day, as 2026-11-15. */
      day?: string;
      limit?: number;
      cursor?: string;
    };
    response: UsageRecordList;
  };
  /** List users by name; callers who can't see others get only themselves */
  "GET /api/v1/users": {
    query: {
      /** Page size, 1 to 200. Default: 50. */
      limit?: number;
      /** The `next_cursor` of the previous page. */
      cursor?: string;
    };
    response: UserList;
  };
  /** Add a user */
  "POST /api/v1/users": {
    body: CreateUserRequest;
    response: User;
  };
  /** Read a user by id or name; `me` is the caller's own user */
  "GET /api/v1/users/{user}": {
    path: {
      user: string;
    };
    response: User;
  };
  /** Remove a user: their keys, tokens and sessions end immediately; their agents and runs stay */
  "DELETE /api/v1/users/{user}": {
    path: {
      user: string;
    };
    response: User;
  };
  /** Change a user; absent members stay unchanged, and a new password ends the user's sessions */
  "PATCH /api/v1/users/{user}": {
    path: {
      user: string;
    };
    body: UpdateUserRequest;
    response: User;
  };
  /** List a workspace's artifacts, newest first */
  "GET /api/v1/workspaces/{workspace}/artifacts": {
    path: {
      workspace: string;
    };
    query: {
      /** Page size, 1 to 200. Default: 50. */
      limit?: number;
      /** The `next_cursor` of the previous page. */
      cursor?: string;
    };
    response: ArtifactList;
  };
  /** Check that the process is alive, and how durable an acknowledged write is */
  "GET /healthz": {
    response: HubHealth;
  };
  /** Check that the hub accepts and can store work; 503 with the reason if not */
  "GET /readyz": {
    response: HubHealth;
  };
}

/** The endpoints that accept an `Idempotency-Key`. */
export const IDEMPOTENT: ReadonlySet<string> = new Set([
  "POST /api/a2a/call",
  "POST /api/a2a/v1/tasks",
  "POST /api/v1/task-runs",
]);
