//! The 25 requirements that the public kit of 1.0 declares and does not test, each by its own name.

mod auth;
mod bindings;
mod in_task;
mod scope;
mod signatures;
mod tls;
mod versions;

use attache_protocol::wire::a2a::{ListTasks, Message, Part, PushConfig};

use crate::{
    obedient::{message, request},
    speak::{Ask, Version},
};

/// A message that says hello.
fn hello(id: &str) -> Message {
    message(id, vec![Part::text("hello")])
}

/// Every operation, about this task.
fn every_operation(task: &str, version: Version) -> Vec<(&'static str, Ask)> {
    let config = PushConfig { url: "https://example.org/told".to_owned(), ..PushConfig::default() };
    let to_task = || Message { task_id: Some(task.to_owned()), ..hello("m9") };
    let mut all = vec![
        ("send", Ask::Send(request(hello("m8")))),
        ("stream", Ask::Stream(request(hello("m7")))),
        ("send to the task", Ask::Send(request(to_task()))),
        ("stream to the task", Ask::Stream(request(to_task()))),
        ("get", Ask::get(task)),
        ("cancel", Ask::cancel(task)),
        ("subscribe", Ask::subscribe(task)),
        ("create push", Ask::create_push(task, config)),
        ("get push", Ask::get_push(task, "c")),
        ("list pushes", Ask::list_pushes(task)),
        ("delete push", Ask::delete_push(task, "c")),
        ("card", Ask::Card),
    ];
    if version == Version::V10 {
        all.push(("list", Ask::List(ListTasks::default())));
    }
    all
}
