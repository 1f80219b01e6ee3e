-- Who paired a runtime or set a peer, with a credential of their own: what others added ends when an agent becomes private.
-- Unknown for those of before.
alter table agent_runtimes add column paired_by blob;
alter table peers add column set_by blob;
