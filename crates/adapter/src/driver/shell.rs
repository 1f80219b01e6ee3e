//! The built-in agent: runs the task's text as a script with `sh`.

use attache_protocol::wire::adapter::{HostInfo, TaskReply};
use futures_util::future::BoxFuture;

use super::{Driver, DriverRun, reply_either_way};
use crate::{
    attachment,
    host::limits,
    process::{self, MAX_ARGUMENT, ProgramSpec},
    scratch::ScratchFolder,
};

#[derive(Debug, Clone, Default)]
pub struct ShellDriver;

// === impl ShellDriver ===

impl Driver for ShellDriver {
    fn host(&self) -> HostInfo {
        HostInfo { kind: "shell".to_owned(), version: Some(env!("CARGO_PKG_VERSION").to_owned()) }
    }

    fn runs_inside_walls(&self) -> bool {
        true
    }

    fn run(&self, job: DriverRun) -> BoxFuture<'static, TaskReply> {
        reply_either_way(execute(job))
    }
}

async fn execute(job: DriverRun) -> Result<TaskReply, TaskReply> {
    let limits = limits::of_walls("the shell", &job)?;
    let script = job.text()?;
    let scratch = ScratchFolder::create(&job.scratch, &job.env).map_err(|error| process::no_scratch(&job, &error))?;
    let args = if script.len() <= MAX_ARGUMENT {
        // A script that starts with a dash is not an option of sh.
        vec!["-c".into(), "--".into(), script.into()]
    } else {
        // Too long for a single argument.
        let file = scratch.file("script");
        tokio::fs::write(&file, script).await.map_err(|error| process::no_scratch(&job, &error))?;
        vec![file.into_os_string()]
    };
    let files = attachment::as_files(&job)?;
    Ok(process::run(
        ProgramSpec { name: "sh".into(), args, stdin: None, files, limits, reads: Vec::new() },
        scratch,
        job,
    )
    .await)
}
