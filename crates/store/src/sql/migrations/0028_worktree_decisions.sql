-- What the owners of runs' worktrees decided, and what the devices made of it. One for each run.
create table worktree_decisions (
    no integer primary key,
    run blob not null,
    tenant blob not null,
    agent blob not null,
    number integer not null,
    action text not null,
    message text,
    actor text not null,
    decided integer not null,
    expires integer not null,
    -- JSON, and when it arrived.
    outcome text,
    settled integer
);
create unique index worktree_decisions_run on worktree_decisions (run);
create index worktree_decisions_pending on worktree_decisions (agent, no) where settled is null;
