-- The grams of every run's text, with what it names (see `search.rs`). Texts don't change, so the index is filled behind the
-- writes, up to `run_search_upto` (in `meta`); newer runs are read. What was there before this migration is indexed the
-- same way after the start, a part at a time.
create virtual table run_search using fts5 (grams, content='', contentless_delete=1, detail=none, tokenize='ascii');
-- What a run cost so far, as its usage tells. Up to `run_search_upto` it is filled in for older runs, too.
alter table task_runs add column micro_usd integer;
create index task_runs_cost on task_runs (id, micro_usd) where micro_usd is not null;
