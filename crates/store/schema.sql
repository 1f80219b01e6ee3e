CREATE TABLE meta (
    key text primary key,
    value integer not null
) without rowid;
CREATE TABLE tenants (
    no integer primary key,
    id blob not null unique,
    name text not null,
    created integer not null,
    -- Log rows up to this seq were removed by retention; the chain goes on from this hash.
    log_floor integer not null default 0,
    log_floor_hash blob not null
, usage_upto integer not null default 0);
CREATE TABLE log (
    key integer primary key,
    at integer not null,
    actor text not null,
    type text not null,
    run blob,
    run_seq integer,
    data text not null,
    hash blob not null,
    seq integer as (key & 0xfffffffffff) virtual
);
CREATE TABLE agent_accounts (
    id blob primary key,
    tenant blob not null,
    name text not null,
    description text,
    instructions text,
    skills text not null,
    a2a text,
    approvals text,
    created integer not null,
    archived integer
, owner blob, callers integer not null default 0, run_timeout integer, private_until integer, on_limit text, confirm_approvals text, instructed_by blob, approved_by blob) without rowid;
CREATE UNIQUE INDEX agent_accounts_name on agent_accounts (tenant, name) where archived is null;
CREATE TABLE agent_runtimes (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    agent blob not null,
    -- 0: a paired device. 1: an agent with a key of its own.
    kind integer not null,
    token blob not null unique,
    state integer not null,
    online integer not null,
    device_name text,
    labels text not null,
    attached integer not null,
    heartbeat integer,
    ended integer
, extensions text, token_offered blob, token_rotated integer, token_reused integer, paired_by blob);
CREATE UNIQUE INDEX agent_runtimes_active on agent_runtimes (agent) where state = 0;
CREATE TABLE pairing_codes (
    code blob primary key,
    poll blob,
    tenant blob,
    agent blob,
    device_name text,
    labels text,
    address text,
    expires integer not null,
    state integer not null
, maker blob) without rowid;
CREATE UNIQUE INDEX pairing_codes_poll on pairing_codes (poll) where poll is not null;
CREATE TABLE api_keys (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    kind integer not null,
    name text not null,
    role text not null,
    secret blob not null unique,
    created integer not null,
    expires integer,
    revoked integer
, user blob, scopes text, opener blob, address text, agent blob, passkey blob);
CREATE TABLE task_runs (
    id integer primary key,
    uid blob not null unique,
    tenant blob not null,
    agent blob not null,
    status integer not null,
    priority integer not null,
    -- Pending: when it expires. Running: when the lease ends.
    until integer,
    created integer not null,
    ended integer,
    -- Null: the run is a conversation of its own.
    conversation blob,
    parent blob,
    -- The caller's key and request, hashed to 16 bytes each; the writer keeps the map of the last day in memory.
    idempotency blob,
    -- Epoch, attempts, limits, newest seq, claim, waits, digest of the outcome, where the run's life-cycle events stand in
    -- the log, its channel, the newest report, and how many tool calls it waits for.
    state blob not null,
    -- What was asked, as JSON.
    request text not null,
    usage text,
    result text
, user blob, payer blob, micro_usd integer);
CREATE INDEX task_runs_queue on task_runs (agent, priority desc, id) where status = 0;
CREATE INDEX task_runs_unsuccessful on task_runs (status, id) where status >= 3;
CREATE INDEX task_runs_conversation on task_runs (conversation, id) where conversation is not null;
CREATE INDEX task_runs_parent on task_runs (parent, id) where parent is not null;
CREATE TABLE agent_runs (
    agent blob not null,
    run integer not null,
    primary key (agent, run)
) without rowid;
CREATE TABLE chunks (
    run integer not null,
    seq integer not null,
    at integer not null,
    type text not null,
    data text not null,
    primary key (run, seq)
) without rowid;
CREATE TABLE conversations (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    title text,
    metadata text,
    created integer not null
, user blob);
CREATE TABLE messages (
    id integer primary key,
    uid blob not null unique,
    tenant blob not null,
    conversation blob not null,
    role integer not null,
    author text not null,
    text text not null,
    metadata text,
    created integer not null
);
CREATE INDEX messages_conversation on messages (conversation, id);
CREATE TABLE artifacts (
    id integer primary key,
    uid blob not null unique,
    tenant blob not null,
    workspace blob not null,
    name text not null,
    media_type text not null,
    size integer not null,
    blake3 blob not null,
    created integer not null
);
CREATE INDEX artifacts_workspace on artifacts (workspace, id);
CREATE TABLE artifact_edges (
    no integer primary key,
    artifact integer not null,
    kind integer not null,
    run blob not null
);
CREATE INDEX artifact_edges_artifact on artifact_edges (artifact, kind, no);
CREATE TABLE channels (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    runtime blob,
    agent blob,
    connected integer not null,
    -- Frames up to this seq are acknowledged or were given up.
    floor integer not null default 0,
    -- Events up to this seq were removed with the front of the log.
    event_floor integer not null default 0,
    -- Null: superseded.
    resume blob,
    last_seen integer not null,
    connected_at integer not null,
    disconnected integer,
    created integer not null,
    reason text,
    address text,
    principal text not null,
    account_ref text not null,
    transport text not null,
    peer_role text not null,
    native_protocol text,
    capabilities text not null,
    device_info text,
    tools text not null
, tools_no integer, node blob);
CREATE INDEX channels_runtime on channels (runtime, no) where runtime is not null and resume is not null;
CREATE INDEX channels_connected on channels (no) where connected = 1;
CREATE TABLE channel_frames (
    key integer primary key,
    kind integer not null,
    -- The run, the permission request or the ask.
    subject blob not null,
    -- The epoch of the claim, or the seq of the event.
    number integer,
    input blob
);
CREATE TABLE channel_events (
    channel integer not null,
    seq integer not null,
    log integer not null,
    primary key (channel, seq)
) without rowid;
CREATE TABLE follows (
    run integer primary key,
    channel integer not null,
    done integer not null default 0,
    pushed integer not null default 0,
    message text not null
);
CREATE INDEX follows_channel on follows (channel, done, run);
CREATE TABLE permission_requests (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    agent blob not null,
    run blob not null,
    epoch integer not null,
    state text not null,
    expires integer,
    on_timeout text not null,
    subject blob not null,
    -- The asker's own name for the question.
    request text,
    conversation blob not null,
    runtime blob not null,
    channel blob,
    requested integer not null,
    tool text not null,
    input text not null,
    cwd text,
    paths text not null,
    reason text,
    risk text,
    decided integer,
    decided_by text,
    source text,
    decided_via text,
    decided_from text,
    permission_grant blob,
    -- A person's decision, as JSON.
    decision text
, diff text, undisclosed text, private_agent integer not null default 0, used_by blob);
CREATE INDEX permission_requests_run on permission_requests (run, no);
CREATE INDEX permission_requests_agent on permission_requests (agent, no);
CREATE INDEX permission_requests_pending on permission_requests (tenant, no) where state = 'pending';
CREATE INDEX permission_requests_expiring on permission_requests (expires)
    where state = 'pending' and expires is not null;
CREATE TABLE permission_grants (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    agent blob not null,
    approved integer not null,
    scope text not null,
    run blob,
    conversation blob,
    tool_pattern text,
    subject blob,
    channel blob,
    until integer,
    permission blob not null,
    created_by text not null,
    created integer not null,
    revoked integer
, user blob, key blob, in_person integer not null default 0);
CREATE INDEX permission_grants_agent on permission_grants (agent, no) where revoked is null;
CREATE TABLE asks (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    run blob not null,
    epoch integer not null,
    kind integer not null,
    state text not null,
    expires integer,
    asked integer not null,
    request text,
    text text not null,
    content text,
    answer text
, message text);
CREATE INDEX asks_run on asks (run, no);
CREATE INDEX asks_expiring on asks (expires) where state = 'pending' and expires is not null;
CREATE TABLE inputs (
    no integer primary key,
    id blob not null unique,
    run blob not null,
    ask blob,
    -- The caller's key, hashed.
    key blob,
    parts text not null
, message text);
CREATE UNIQUE INDEX inputs_key on inputs (run, key) where key is not null;
CREATE TABLE users (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    name text not null,
    role text not null,
    -- A hash with its salt and parameters.
    password text,
    created integer not null,
    removed integer
);
CREATE UNIQUE INDEX users_name on users (tenant, name) where removed is null;
CREATE TABLE access_rules (
    tenant blob primary key,
    text text not null,
    version integer not null,
    changed integer not null,
    changed_by text not null
) without rowid;
CREATE INDEX api_keys_user on api_keys (user, no) where user is not null;
CREATE TABLE quotas (
    tenant blob not null,
    user blob not null,
    agent blob not null,
    calls integer,
    tokens integer,
    micro_usd integer,
    primary key (tenant, user, agent)
) without rowid;
CREATE TABLE usage_days (
    tenant blob not null,
    day integer not null,
    user blob not null,
    agent blob not null,
    calls integer not null,
    failed integer not null,
    tokens integer not null,
    micro_usd integer not null,
    reported integer not null,
    estimated integer not null,
    unknown integer not null,
    duration_ms integer not null,
    primary key (tenant, day, user, agent)
) without rowid;
CREATE TABLE deliveries (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    run blob not null,
    -- Null: it tells of the run's end.
    permission blob,
    url text not null,
    state text not null,
    attempts integer not null default 0,
    next integer,
    last_at integer,
    last_status integer,
    last_error text,
    created integer not null,
    delivered integer
, config text, seq integer, target blob, node blob);
CREATE INDEX deliveries_run on deliveries (run, no);
CREATE INDEX deliveries_due on deliveries (next) where state = 'pending';
CREATE INDEX deliveries_failed on deliveries (no) where state = 'failed';
CREATE TABLE push_configs (
    no integer primary key,
    run integer not null,
    id text not null,
    url text not null,
    -- The subscriber's token and credentials, sealed by the hub.
    sealed blob,
    -- In which version of A2A it is told: 10 or 3.
    version integer not null,
    created integer not null
);
CREATE UNIQUE INDEX push_configs_id on push_configs (run, id);
CREATE TABLE peers (
    no integer primary key,
    agent blob not null unique,
    tenant blob not null,
    url text not null,
    -- The credential, sealed by the hub.
    sealed blob,
    -- The card that is trusted.
    pin_digest blob,
    pin_card text,
    pinned integer,
    -- The card that waits for the owner's trust.
    offered_digest blob,
    offered_card text,
    offered integer,
    problem text
, set_by blob);
CREATE TABLE peer_tasks (
    no integer primary key,
    run blob not null unique,
    agent blob not null,
    epoch integer not null,
    url text not null,
    message_id text not null,
    peer_task_id text,
    peer_context_id text,
    -- Its state, in the peer's own words.
    native_status text,
    recovery text,
    sent integer not null,
    updated integer not null
);
CREATE INDEX peer_tasks_peer on peer_tasks (agent, peer_task_id, no) where peer_task_id is not null;
CREATE TABLE delegations (
    no integer primary key,
    uid blob not null unique,
    tenant blob not null,
    owner text not null,
    status text not null,
    -- All that is shown of it, as the daemon said it.
    shown text not null,
    cancel_requested integer not null,
    updated integer not null
, agent blob);
CREATE INDEX delegations_tenant on delegations (tenant, no);
CREATE UNIQUE INDEX agent_runtimes_offered on agent_runtimes (token_offered) where token_offered is not null;
CREATE TABLE replaced_tokens (
    token blob primary key,
    runtime blob not null,
    replaced integer not null
) without rowid;
CREATE INDEX replaced_tokens_runtime on replaced_tokens (runtime, replaced);
CREATE INDEX chunks_artifacts on chunks (run, seq) where type = 'artifact.changed';
CREATE TABLE channel_tools (
    no integer primary key,
    hash blob not null unique,
    text text not null
);
CREATE INDEX api_keys_opener on api_keys (opener, no) where opener is not null;
CREATE TABLE deleted_keys (
    tenant blob not null,
    key blob not null,
    created integer not null,
    primary key (tenant, key)
) without rowid;
CREATE INDEX artifacts_blake3 on artifacts (blake3);
CREATE INDEX artifact_edges_run on artifact_edges (run);
CREATE INDEX inputs_run on inputs (run);
CREATE INDEX permission_grants_run on permission_grants (run) where run is not null;
CREATE INDEX permission_grants_conversation on permission_grants (conversation) where conversation is not null;
CREATE INDEX permission_grants_permission on permission_grants (permission);
CREATE INDEX api_keys_agent on api_keys (agent, no) where agent is not null;
CREATE INDEX permission_grants_user on permission_grants (user, no) where revoked is null and user is not null;
CREATE INDEX permission_grants_key on permission_grants (key, no) where revoked is null and key is not null;
CREATE TABLE conversation_agents (
    conversation blob not null,
    agent blob not null, joined integer not null default 0,
    primary key (conversation, agent)
) without rowid;
CREATE VIRTUAL TABLE run_search using fts5 (grams, content='', contentless_delete=1, detail=none, tokenize='ascii');
CREATE TABLE 'run_search_data'(id INTEGER PRIMARY KEY, block BLOB);
CREATE TABLE 'run_search_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID;
CREATE TABLE 'run_search_docsize'(id INTEGER PRIMARY KEY, sz BLOB, origin INTEGER);
CREATE TABLE 'run_search_config'(k PRIMARY KEY, v) WITHOUT ROWID;
CREATE INDEX task_runs_cost on task_runs (id, micro_usd) where micro_usd is not null;
CREATE TABLE saved_views (
    no integer primary key,
    user blob not null,
    name text not null,
    query text not null
);
CREATE UNIQUE INDEX saved_views_name on saved_views (user, name);
CREATE TABLE notification_targets (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    service text not null,
    name text not null,
    user blob,
    -- The key or session that it ends with.
    key blob not null,
    origin text not null,
    -- A digest of the complete address.
    address blob not null,
    -- The complete address and its secrets, sealed by the hub.
    sealed blob not null,
    choices text not null,
    created integer not null
);
CREATE INDEX notification_targets_tenant on notification_targets (tenant, no);
CREATE INDEX deliveries_notified on deliveries (tenant, seq) where target is not null;
CREATE TABLE nodes (
    no integer primary key,
    id blob not null unique,
    beats integer not null default 0
);
CREATE TABLE node_leases (
    name text not null primary key,
    node blob not null
);
CREATE INDEX deliveries_leased on deliveries (node) where node is not null;
CREATE TABLE shared_values (
    no integer primary key,
    kind text not null,
    name text not null,
    tenant blob not null,
    holder text not null,
    value blob not null,
    expires integer not null
);
CREATE UNIQUE INDEX shared_values_name on shared_values (kind, name);
CREATE INDEX shared_values_holder on shared_values (kind, tenant, holder, no);
CREATE INDEX shared_values_expires on shared_values (expires);
CREATE TABLE worktree_decisions (
    no integer primary key,
    run blob not null,
    tenant blob not null,
    agent blob not null,
    number integer not null,
    action text not null,
    message text,
    actor text not null,
    decided integer not null,
    expires integer not null,
    -- JSON, and when it arrived.
    outcome text,
    settled integer
);
CREATE UNIQUE INDEX worktree_decisions_run on worktree_decisions (run);
CREATE INDEX worktree_decisions_pending on worktree_decisions (agent, no) where settled is null;
CREATE TABLE passkeys (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    user blob not null,
    name text not null,
    -- The authenticator's id of it.
    credential blob not null unique,
    -- A COSE key.
    public_key blob not null,
    counter integer not null,
    created integer not null,
    used integer
);
CREATE INDEX passkeys_user on passkeys (user, no);
CREATE INDEX api_keys_passkey on api_keys (passkey, no) where passkey is not null;
CREATE TABLE conversations_of_others (
    conversation blob primary key
) without rowid;
CREATE TABLE former_names (
    tenant blob not null,
    name text not null,
    owner blob,
    primary key (tenant, name)
) without rowid;
