//! The 25 requirements that the public kit of 1.0 declares and does not test, each by its own name.

mod auth;
mod bindings;
mod in_task;
mod scope;
mod signatures;
mod tls;
mod versions;

use attache_a2a_wire::{ListTasks, Message, Part, PushConfig};

use crate::{
    obedient::{message, request},
    speak::{TestOperation, TestVersion},
};

/// A message that says hello.
fn hello(id: &str) -> Message {
    message(id, vec![Part::text("hello")])
}

/// Every operation, about this task.
fn every_operation(task: &str, version: TestVersion) -> Vec<(&'static str, TestOperation)> {
    let config = PushConfig { url: "https://example.org/told".to_owned(), ..PushConfig::default() };
    let to_task = || Message { task_id: Some(task.to_owned()), ..hello("m9") };
    let mut all = vec![
        ("send", TestOperation::Send(request(hello("m8")))),
        ("stream", TestOperation::Stream(request(hello("m7")))),
        ("send to the task", TestOperation::Send(request(to_task()))),
        ("stream to the task", TestOperation::Stream(request(to_task()))),
        ("get", TestOperation::get(task)),
        ("cancel", TestOperation::cancel(task)),
        ("subscribe", TestOperation::subscribe(task)),
        ("create push", TestOperation::create_push(task, config)),
        ("get push", TestOperation::get_push(task, "c")),
        ("list pushes", TestOperation::list_pushes(task)),
        ("delete push", TestOperation::delete_push(task, "c")),
        ("card", TestOperation::Card),
    ];
    if version == TestVersion::V10 {
        all.push(("list", TestOperation::List(ListTasks::default())));
    }
    all
}
