-- Whether the user who gave a grant did so in person, with all of their rights.
alter table permission_grants add column in_person integer not null default 0;
-- Who wrote an agent's instructions, and its settings for approvals, in person. Null: nobody, or unknown.
alter table agent_accounts add column instructed_by blob;
alter table agent_accounts add column approved_by blob;
-- The conversations in which others than their user in person gave tasks. It outlives the runs, and a conversation with a row
-- of its own that has a user.
create table conversations_of_others (
    conversation blob primary key
) without rowid;
insert into conversations_of_others (conversation)
    select c.id from conversations c where exists (
            select 1 from task_runs r where r.conversation = c.id
                and (r.user is distinct from c.user or r.parent is not null or instr(r.request, '"in_person":true') = 0)
        -- Runs were removed.
        ) or exists (
            select 1 from conversation_agents m where m.conversation = c.id
                and not exists (select 1 from task_runs r where r.conversation = c.id and r.agent = m.agent)
        )
    union select r.conversation from task_runs r join task_runs o on o.uid = r.conversation and o.conversation is null
        where r.user is distinct from o.user or r.parent is not null or instr(r.request, '"in_person":true') = 0
    union select uid from task_runs where conversation is null and parent is not null;
-- The owner of the agent that last gave up a name, by being archived or renamed.
create table former_names (
    tenant blob not null,
    name text not null,
    owner blob,
    primary key (tenant, name)
) without rowid;
insert into former_names (tenant, name, owner)
    select a.tenant, a.name, a.owner from agent_accounts a where a.archived is not null and not exists (
        select 1 from agent_accounts b where b.tenant = a.tenant and b.name = a.name and b.archived is not null
            and (b.archived > a.archived or (b.archived = a.archived and b.id > a.id))
    );
