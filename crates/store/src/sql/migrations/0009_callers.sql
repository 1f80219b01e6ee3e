-- Who may put an agent to work (0: everyone, 1: its owner), and how long its runs may take (milliseconds) unless their caller says.
alter table agent_accounts add column callers integer not null default 0;
alter table agent_accounts add column run_timeout integer;
