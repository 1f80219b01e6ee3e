-- The clock by which things are forgotten begins at the newest run, so that no key is forgotten early.
insert into meta (key, value)
    select 'clock', max(created) / 60000 * 60000 from task_runs having max(created) is not null;
