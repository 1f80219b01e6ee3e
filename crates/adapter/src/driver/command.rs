//! Runs any program as an agent: the task's text goes to its standard input or an argument, its standard output is the
//! answer.

use std::{ffi::OsString, path::PathBuf};

use attache_protocol::wire::adapter::{HostInfo, TaskReply};
use futures_util::future::BoxFuture;

use super::{Driver, DriverRun, reply_either_way};
use crate::{
    attachment,
    host::limits,
    placed_files::PlacedFiles,
    process::{self, ProgramSpec},
    scratch::ScratchFolder,
};

/// The argument replaced by the task's text.
const PLACEHOLDER: &str = "{}";

#[derive(Debug, Clone)]
pub struct CommandDriver {
    program: OsString,
    args: Vec<OsString>,
}

// === impl CommandDriver ===

impl CommandDriver {
    /// If an argument is `{}`, the task's text replaces it and standard input is empty. Otherwise the text goes to
    /// standard input.
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        Self { program: program.into(), args: args.into_iter().map(Into::into).collect() }
    }

    /// The files among the arguments that the device's owner chose, such as a script. The task's text is none of them.
    fn own_files(&self) -> Vec<PathBuf> {
        let paths = self.args.iter().map(PathBuf::from);
        paths.filter(|path| path.is_absolute() && path.is_file()).collect()
    }

    fn program(&self, text: String) -> Result<ProgramSpec, TaskReply> {
        let (name, mut args) = (self.program.clone(), self.args.clone());
        let mut places = args.iter_mut().filter(|arg| *arg == PLACEHOLDER).peekable();
        if places.peek().is_none() {
            return Ok(ProgramSpec {
                name,
                args,
                stdin: Some(text),
                files: PlacedFiles::default(),
                limits: Vec::new(),
                reads: Vec::new(),
            });
        }
        process::fits(&text, &name, "start the adapter without `{}`")?;
        places.for_each(|place| *place = text.clone().into());
        Ok(ProgramSpec {
            name,
            args,
            stdin: None,
            files: PlacedFiles::default(),
            limits: Vec::new(),
            reads: Vec::new(),
        })
    }
}

impl Driver for CommandDriver {
    fn host(&self) -> HostInfo {
        HostInfo { kind: "command".to_owned(), version: Some(env!("CARGO_PKG_VERSION").to_owned()) }
    }

    fn runs_inside_walls(&self) -> bool {
        true
    }

    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        let label = format!("`{}`", self.program.display());
        let limits = limits::of_walls(&label, &job);
        let program = job.text().and_then(|text| self.program(text));
        let reads = self.own_files();
        reply_either_way(async move {
            let limits = limits?;
            let program = ProgramSpec { files: attachment::as_files(&job)?, limits, reads, ..program? };
            let scratch =
                ScratchFolder::create(&job.scratch, &job.env).map_err(|error| process::no_scratch(&job, &error))?;
            Ok(process::run(program, scratch, job).await)
        })
    }
}
