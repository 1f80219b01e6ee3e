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
);
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
    created integer not null,
    archived integer
) without rowid;
CREATE UNIQUE INDEX agent_accounts_name on agent_accounts (tenant, name) where archived is null;
CREATE TABLE agent_runtimes (
    no integer primary key,
    id blob not null unique,
    tenant blob not null,
    agent blob not null,
    token blob not null unique,
    state integer not null,
    online integer not null,
    device_name text,
    labels text not null,
    attached integer not null,
    heartbeat integer,
    ended integer
);
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
) without rowid;
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
);
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
    -- Epoch, attempts, limits, newest seq, claim, waits, digest of the outcome, and where the run's life-cycle events stand
    -- in the log.
    state blob not null,
    -- What was asked, as JSON.
    request text not null,
    usage text,
    result text
);
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
);
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
