-- Runtime tokens are rotated: the one that is offered next, when the present one was adopted, when a replaced one was last
-- used, and the replaced ones.
alter table agent_runtimes add column token_offered blob;
alter table agent_runtimes add column token_rotated integer;
alter table agent_runtimes add column token_reused integer;
create unique index agent_runtimes_offered on agent_runtimes (token_offered) where token_offered is not null;
create table replaced_tokens (
    token blob primary key,
    runtime blob not null,
    replaced integer not null
) without rowid;
create index replaced_tokens_runtime on replaced_tokens (runtime, replaced);
