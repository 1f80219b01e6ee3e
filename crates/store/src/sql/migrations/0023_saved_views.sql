-- Views of the list of runs that people keep under a name, in the order in which they made them.
create table saved_views (
    no integer primary key,
    user blob not null,
    name text not null,
    query text not null
);
create unique index saved_views_name on saved_views (user, name);
