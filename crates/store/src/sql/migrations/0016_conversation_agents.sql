-- Which agents ever had a run in a conversation, other than the run that the conversation belongs to. It outlives the runs.
create table conversation_agents (
    conversation blob not null,
    agent blob not null,
    primary key (conversation, agent)
) without rowid;
insert into conversation_agents (conversation, agent)
    select distinct conversation, agent from task_runs where conversation is not null;
