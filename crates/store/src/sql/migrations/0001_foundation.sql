-- The foundation: tenants, agents, devices, runs, the log and what runs leave behind.
-- Throughput follows the number of B-tree writes per call, so every index here earns its place:
-- a whole life of a run (create, claim, complete) makes nine.

-- Single numbers: `running_floor` (no running run has a smaller task_runs.id), `chunks_before` (chunks of runs that
-- ended before this time are gone), `agent_runs_upto` (task_runs up to this id are in agent_runs).
create table meta (
    key text primary key,
    value integer not null
) without rowid;

create table tenants (
    no integer primary key,
    id blob not null unique,
    name text not null,
    created integer not null,
    -- Log rows up to this seq were removed by retention; the chain goes on from this hash.
    log_floor integer not null default 0,
    log_floor_hash blob not null
);

-- Life-cycle event, audit record and feed item in one row, chained by hash per tenant.
-- The key is the tenant's number in the upper 19 bits and the seq in the lower 44: appending to a table that is ordered by
-- an integer costs half of what it costs with (tenant, seq).
create table log (
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

create table agent_accounts (
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
) without rowid;
create unique index agent_accounts_name on agent_accounts (tenant, name) where archived is null;

create table agent_runtimes (
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
);
create unique index agent_runtimes_active on agent_runtimes (agent) where state = 0;

-- A code that a person made (agent known from the start) or a device shows (poll known, agent at confirmation).
create table pairing_codes (
    code blob primary key,
    poll blob,
    tenant blob,
    agent blob,
    device_name text,
    labels text,
    address text,
    expires integer not null,
    state integer not null
) without rowid;
create unique index pairing_codes_poll on pairing_codes (poll) where poll is not null;

create table api_keys (
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
);

-- The single execution truth. An update costs by the number of columns, so what no statement looks at by itself is packed.
create table task_runs (
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
);
create index task_runs_queue on task_runs (agent, priority desc, id) where status = 0;
create index task_runs_unsuccessful on task_runs (status, id) where status >= 3;
create index task_runs_conversation on task_runs (conversation, id) where conversation is not null;
create index task_runs_parent on task_runs (parent, id) where parent is not null;

-- The runs of each agent, for lists. The sweep fills it in bulk up to `agent_runs_upto`, because an index would cost
-- every creation a page of its own; lists look through the few newer runs themselves.
create table agent_runs (
    agent blob not null,
    run integer not null,
    primary key (agent, run)
) without rowid;

-- What only the run's own stream shows: progress, chunks, thoughts, log lines, tool calls.
create table chunks (
    run integer not null,
    seq integer not null,
    at integer not null,
    type text not null,
    data text not null,
    primary key (run, seq)
) without rowid;

create table conversations (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    title text,
    metadata text,
    created integer not null
);

create table messages (
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
create index messages_conversation on messages (conversation, id);

create table artifacts (
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
create index artifacts_workspace on artifacts (workspace, id);

-- Which run produced (0) or consumed (1) which artifact, in the order in which they said so.
create table artifact_edges (
    no integer primary key,
    artifact integer not null,
    kind integer not null,
    run blob not null
);
create index artifact_edges_artifact on artifact_edges (artifact, kind, no);

-- A peer's lasting connection. Its newest frame and its newest event are those of the two tables below: a frame costs one
-- row, and this one stays as it is.
create table channels (
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
);
create index channels_runtime on channels (runtime, no) where runtime is not null and resume is not null;
create index channels_connected on channels (no) where connected = 1;

-- Frames that wait for a peer, as references. The key is the channel's number in the upper 27 bits and the seq in the
-- lower 36.
create table channel_frames (
    key integer primary key,
    kind integer not null,
    -- The run, the permission request or the ask.
    subject blob not null,
    -- The epoch of the claim, or the seq of the event.
    number integer,
    input blob
);

-- Where a channel's events stand in the log.
create table channel_events (
    channel integer not null,
    seq integer not null,
    log integer not null,
    primary key (channel, seq)
) without rowid;

-- Runs whose events become frames of a channel. Done: the last one is a frame.
create table follows (
    run integer primary key,
    channel integer not null,
    done integer not null default 0,
    pushed integer not null default 0,
    message text not null
);
create index follows_channel on follows (channel, done, run);

create table permission_requests (
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
);
create index permission_requests_run on permission_requests (run, no);
create index permission_requests_agent on permission_requests (agent, no);
create index permission_requests_pending on permission_requests (tenant, no) where state = 'pending';
create index permission_requests_expiring on permission_requests (expires)
    where state = 'pending' and expires is not null;

-- Standing answers: for a run, for an agent in a conversation, or for an agent; by a pattern or by a subject.
create table permission_grants (
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
);
create index permission_grants_agent on permission_grants (agent, no) where revoked is null;

-- Questions to the caller (kind 0: `text` is the prompt, `content` its parts) and to the engine that follows the run
-- (kind 1: the tool and its arguments).
create table asks (
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
);
create index asks_run on asks (run, no);
create index asks_expiring on asks (expires) where state = 'pending' and expires is not null;

create table inputs (
    no integer primary key,
    id blob not null unique,
    run blob not null,
    ask blob,
    -- The caller's key, hashed.
    key blob,
    parts text not null
);
create unique index inputs_key on inputs (run, key) where key is not null;
