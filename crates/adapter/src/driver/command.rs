//! Any program as an agent: the task's text on its standard input or as an argument, its standard output the answer.

use std::ffi::OsString;

use attache_protocol::wire::adapter::{Host, TaskReply};
use futures_util::future::BoxFuture;

use super::{Driver, Job, settled};
use crate::{
    attachment::{self, Placed},
    host::limits,
    process::{self, Program},
    scratch::Scratch,
};

/// The argument that stands for the task's text.
const PLACEHOLDER: &str = "{}";

#[derive(Debug, Clone)]
pub struct Command {
    program: OsString,
    args: Vec<OsString>,
}

// === impl Command ===

impl Command {
    /// With an argument `{}` the text takes its place and standard input is empty; else the text is the input.
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }

    fn program(&self, text: String) -> Result<Program, TaskReply> {
        let (name, mut args) = (self.program.clone(), self.args.clone());
        let mut places = args.iter_mut().filter(|arg| *arg == PLACEHOLDER).peekable();
        if places.peek().is_none() {
            return Ok(Program { name, args, stdin: Some(text), files: Placed::default() });
        }
        process::fits(&text, &name, "start the adapter without `{}`")?;
        places.for_each(|place| *place = text.clone().into());
        Ok(Program { name, args, stdin: None, files: Placed::default() })
    }
}

impl Driver for Command {
    fn host(&self) -> Host {
        Host { kind: "command".to_owned(), version: Some(env!("CARGO_PKG_VERSION").to_owned()) }
    }

    fn run(&self, job: Job) -> BoxFuture<'static, TaskReply> {
        let label = format!("`{}`", self.program.display());
        let program =
            limits::without_limits(&label, &job).and_then(|()| job.text()).and_then(|text| self.program(text));
        settled(async move {
            let program = Program { files: attachment::as_files(&job)?, ..program? };
            let scratch = Scratch::create(&job.scratch, &job.env).map_err(|error| process::no_scratch(&job, &error))?;
            Ok(process::run(program, scratch, job).await)
        })
    }
}
