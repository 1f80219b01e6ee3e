-- Whose quotas a run counts towards, if not its own user's: the person whose call it is a part of.
alter table task_runs add column payer blob;
-- The agent of this hub that a delegation went to. Its name may be another agent's later.
alter table delegations add column agent blob;
