-- Until when an agent was private: what it did before stays with those who started it. And since when an agent has had a part in a conversation.
alter table agent_accounts add column private_until integer;
alter table conversation_agents add column joined integer not null default 0;
update conversation_agents set joined = coalesce((select min(r.created) from task_runs r
    where r.conversation = conversation_agents.conversation and r.agent = conversation_agents.agent), 0);
