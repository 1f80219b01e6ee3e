-- What an agent's runs do at a usage limit of its model account. Without a value: `fallback`.
alter table agent_accounts add column on_limit text;
