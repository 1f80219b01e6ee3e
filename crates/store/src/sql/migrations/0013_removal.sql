-- The idempotency key of a run that somebody deleted stays taken for its time.
create table deleted_keys (
    tenant blob not null,
    key blob not null,
    created integer not null,
    primary key (tenant, key)
) without rowid;
-- What belongs to a run or a conversation is found without a search when that is removed.
create index artifacts_blake3 on artifacts (blake3);
create index artifact_edges_run on artifact_edges (run);
create index inputs_run on inputs (run);
create index permission_grants_run on permission_grants (run) where run is not null;
create index permission_grants_conversation on permission_grants (conversation) where conversation is not null;
create index permission_grants_permission on permission_grants (permission);
