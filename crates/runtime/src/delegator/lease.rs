//! The life of one delegation: asks the rules what may happen, and does what they say in the order in which they say it.

use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf, time::Duration};

use attache_protocol::{
    DelegationId, Json, Timestamp,
    rules::delegation::{Command, Effect, Refusal, State, Status},
    wire::{
        awcp::{self, ErrorCode, Invite, Offer, Requirements, Task, Workspace},
        delegation::{Delegate, Failure, Outcome},
    },
};
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    desk::{Delegator, blocking},
    end::{End, local, no_key},
    keyring::Keyring,
    lend::{self, Lent, Loan},
    peer::{Heard, Line},
    policy::Admitted,
    publish,
    reach::{self, Way},
    report, tell, tunnel,
};

pub(super) struct Lease {
    desk: Delegator,
    id: DelegationId,
    request: Delegate,
    admitted: Admitted,
    keys: Keyring,
    state: State,
    cancel: CancellationToken,
    line: Line,
    lent: Option<Lent>,
    baseline: Option<JoinHandle<()>>,
    log: usize,
    /// What went wrong on this machine, for the report.
    trouble: Option<String>,
}

/// Something that ends the wait for something else.
enum Interrupted {
    Cancelled,
    Overdue,
}

/// The longest log of what a remote writes.
const LONGEST_LOG: usize = 16 << 20;
const LONGEST_PROGRESS: usize = 500;
/// A machine that slept has another time than its timers.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(2);
/// A tunnel lives a little longer than the lease, whose end is decided here.
const SLACK: Duration = Duration::from_secs(60);

// === impl Lease ===

impl Lease {
    pub(super) fn new(
        desk: Delegator,
        id: DelegationId,
        request: Delegate,
        admitted: Admitted,
        keys: Keyring,
        state: State,
        cancel: CancellationToken,
    ) -> Self {
        let line = line(&desk, id, &request, &admitted, &keys);
        let (lent, baseline, log, trouble) = (None, None, 0, None);
        Self { desk, id, request, admitted, keys, state, cancel, line, lent, baseline, log, trouble }
    }

    pub(super) async fn run(mut self, go: oneshot::Receiver<()>) {
        let publishing = publish::start(&self.desk, self.id, &self.keys, self.cancel.clone());
        let end = match self.live(go).await {
            Err(end) => end,
            Ok(never) => match never {},
        };
        self.end(end).await;
        if let Some(publishing) = publishing {
            publishing.finish().await;
        }
    }

    /// Everything until the end, which is the only way out.
    async fn live(&mut self, go: oneshot::Receiver<()>) -> Result<std::convert::Infallible, Box<End>> {
        // However long it is queued, its time does not run. The sender is dropped only together with the desk.
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(self.interrupted(Interrupted::Cancelled)),
            _ = go => {}
        }
        self.state = self.state.released(self.desk.env().now());
        let way = reach::choose(
            &self.admitted.peer,
            self.admitted.hub.as_ref().map(|(hub, _)| hub.as_str()),
            self.desk.0.ground.address,
        );
        let way = way.map_err(End::ours)?;
        loop {
            let (desk, id) = (self.desk.clone(), self.id);
            let met = over_or(&self.cancel, &desk, self.state.deadline, self.line.meet()).await;
            match met.map_err(|interrupted| self.interrupted(interrupted))? {
                Ok(()) => break,
                Err(Heard::Trouble(reason)) => {
                    desk.await_what(id, Some(format!("the way to the remote: {reason}")));
                    let rested = over_or(&self.cancel, &desk, self.state.deadline, self.line.rest()).await;
                    rested.map_err(|interrupted| self.interrupted(interrupted))?;
                }
                Err(Heard::Lost(failure)) => return Err(End::failed(failure)),
                Err(_) => {}
            }
        }
        // It is made while the remote thinks; the folder is lent when it is there.
        let (desk, id, admitted, request) = (self.desk.clone(), self.id, self.admitted.clone(), self.request.clone());
        self.baseline = Some(tokio::task::spawn_blocking(move || report::baseline(&desk, id, &admitted, &request)));
        self.step(&Command::Invite)?;
        self.desk.show(self.id, |shown| {
            shown.status = Status::Invited;
            shown.waits_for = None;
        });
        self.desk.note(self.id, "invite", None);
        self.desk.keep(self.id).await;
        loop {
            let heard = over_or(&self.cancel, &self.desk, self.state.deadline, self.line.next()).await;
            let heard = heard.map_err(|interrupted| self.interrupted(interrupted))?;
            self.react(heard, &way).await?;
        }
    }

    async fn react(&mut self, heard: Heard, way: &Way) -> Result<(), Box<End>> {
        let (desk, id) = (self.desk.clone(), self.id);
        match heard {
            Heard::Task(task) => {
                desk.show(id, |shown| shown.task_id = Some(task));
                desk.keep(id).await;
            }
            Heard::Queued => {
                desk.await_what(id, Some("the remote to take it up; it may be offline".to_owned()));
            }
            Heard::Trouble(reason) => desk.await_what(id, Some(format!("the way to the remote: {reason}"))),
            Heard::Asks(what) => desk.await_what(id, Some(what)),
            Heard::Accept(accept) => self.accepted(*accept, way).await?,
            Heard::Working if self.state.is_lent() => {
                if self.state.status != Status::Running {
                    self.step(&Command::Work)?;
                    desk.note(id, "work", None);
                    desk.show(id, |shown| shown.status = Status::Running);
                    desk.keep(id).await;
                }
                desk.await_what(id, None);
            }
            // It looks at the invitation.
            Heard::Working => desk.await_what(id, Some("the remote's answer".to_owned())),
            Heard::Said(text) => {
                self.write_log(&format!("{text}\n")).await;
                desk.show(id, |shown| shown.progress = Some(brief(&text)));
            }
            Heard::Wrote(text) => {
                self.write_log(&text).await;
                if let Some(line) = text.trim().lines().next_back() {
                    desk.show(id, |shown| shown.progress = Some(brief(line)));
                }
            }
            Heard::Done(done) if self.state.is_lent() => return Err(End::done(done)),
            Heard::Done(_) => {
                return Err(End::ours(Failure {
                    code: ErrorCode::TaskFailed,
                    message: "the remote says that it is done and was never given the folder".to_owned(),
                    hint: "Ask its owner which version of AWCP it speaks.".to_owned(),
                }));
            }
            Heard::Failed(failure) => return Err(End::failed(failure)),
            Heard::Lost(failure) => return Err(End::ours(failure)),
            Heard::LookAgain => {}
        }
        Ok(())
    }

    /// ACCEPT came: the terms are agreed, the folder is lent, START goes out.
    async fn accepted(&mut self, accept: awcp::Accept, way: &Way) -> Result<(), Box<End>> {
        let (desk, id) = (self.desk.clone(), self.id);
        if self.state.status != Status::Invited {
            return Ok(());
        }
        let constraints = accept.remote_constraints.clone().unwrap_or_default();
        self.step(&Command::Accept(constraints))?;
        let terms = self.state.terms;
        desk.agree(id, terms);
        desk.note(id, "accept", Some(&accept.remote_mount.mount_point));
        desk.show(id, |shown| {
            shown.status = Status::Accepted;
            shown.access_mode = terms.access_mode;
            shown.ttl_seconds = terms.ttl.as_secs();
            shown.remote_mount_point = Some(accept.remote_mount.mount_point.clone());
            shown.waits_for = None;
        });
        desk.keep(id).await;
        if let Some(baseline) = self.baseline.take() {
            let _ = self.unless_over(baseline).await?;
        }
        let lent = self.lend(accept.remote_mount.client_key, accept.remote_mount.mount_point.into()).await?;
        let (lent, mount) = match way {
            Way::Direct { host, port } => {
                let mount = lent.mount(host.clone(), *port, None);
                (lent, mount)
            }
            Way::Tunnel { hub } => {
                let options = self.keys.hub.clone().ok_or_else(|| End::ours(no_key(hub)))?;
                let shown = publish::shown(&desk, id).map_err(|refused| End::ours(local(refused.message)))?;
                let expires_at = desk.env().now().plus(terms.ttl).plus(SLACK);
                let opening = tunnel::open(&options, (id, &shown), expires_at, desk.env());
                let opened = self.unless_over(opening).await?.map_err(End::ours)?;
                let given = opened.given.clone();
                let served = opened.serve(desk.0.ground.server.clone(), &desk.0.tasks);
                // Where the remote makes its own end of the tunnel; only its name is needed.
                let mount = lent.mount("localhost".to_owned(), 22, Some(given));
                (lent.through(served), mount)
            }
        };
        // Whatever happens from here on, there is something to take back.
        self.lent = Some(lent);
        self.step(&Command::Start)?;
        let started = lend::start(id, self.state.deadline, terms, mount);
        let (now, expires_at) = (desk.env().now(), self.state.deadline);
        desk.show(id, |shown| {
            shown.status = Status::Started;
            shown.started_at = Some(now);
            shown.expires_at = Some(expires_at);
        });
        desk.note(id, "start", Some(&format!("{} until {expires_at}", terms.access_mode)));
        desk.keep(id).await;
        self.describe().await;
        self.line.start(&started);
        Ok(())
    }

    async fn lend(&mut self, client_key: Option<String>, seen_at: PathBuf) -> Result<Lent, Box<End>> {
        let (desk, id, admitted, request) = (self.desk.clone(), self.id, self.admitted.clone(), self.request.clone());
        let terms = self.state.terms;
        let lending = blocking(move || {
            if let Err(error) = desk.0.records.point(id, &admitted.folder) {
                tracing::warn!(delegation.id = %id, %error, "the link to the folder cannot be made");
            }
            let loan = Loan {
                delegation: id,
                folder: &admitted.folder,
                before: &desk.before(id),
                terms,
                rules: lend::rules(&admitted, &request),
                limits: &admitted.export,
                client_key,
                seen_at,
            };
            desk.0.ground.lend(loan, desk.0.options.audit.clone())
        });
        let lent = self.unless_over(lending).await?;
        lent.map_err(|refused| End::ours(local(refused.message)))?.map_err(End::ours)
    }

    async fn end(mut self, mut end: Box<End>) {
        // What failed on this side the remote need not know, or may not want to.
        if end.command == Command::Complete
            && let Some(failure) = self.lent.as_ref().and_then(Lent::incomplete)
        {
            end = end.incomplete(failure);
        }
        let now = self.desk.env().now();
        let transition = self.state.step(&end.command, now);
        let (status, mut effects) = match transition {
            Ok(transition) => (transition.state.status, transition.effects),
            // It was not lent, so there is nothing to take back.
            Err(_) => (Status::Error, vec![Effect::Report]),
        };
        if end.is_ours
            && self.state.status != Status::Created
            && !effects.iter().any(|it| matches!(it, Effect::Tell(_)))
        {
            let last = effects.len().saturating_sub(1);
            effects.insert(last, Effect::Tell(ErrorCode::Cancelled));
        }
        let why = end.result.error.as_ref().map_or("it is done", |failure| &failure.message).to_owned();
        for effect in effects {
            match effect {
                Effect::Revoke => self.revoke().await,
                Effect::Tell(code) => self.tell(code, &why).await,
                Effect::Report => self.report(status, end.result.clone()).await,
            }
        }
    }

    async fn revoke(&mut self) {
        if let Some(lent) = self.lent.take() {
            self.trouble = lent.revoke().await;
            self.desk.note(self.id, "revoke", None);
            if let Some(trouble) = self.trouble.clone() {
                self.desk.note(self.id, "trouble", Some(&trouble));
                self.write_log(&format!("attache: {trouble}\n")).await;
            }
        }
    }

    /// The folder is safe by now, so the remote's slowness holds up nobody for long.
    async fn tell(&mut self, code: ErrorCode, why: &str) {
        if self.line.is_unheard() {
            return;
        }
        let (desk, id) = (&self.desk, self.id);
        let line = std::mem::replace(&mut self.line, line(desk, id, &self.request, &self.admitted, &self.keys));
        let telling = tell::tell(desk, id, line, code, why.to_owned());
        let _ = tokio::time::timeout(desk.0.options.pace.tell, telling).await;
    }

    async fn report(&mut self, status: Status, mut result: Outcome) {
        if let Some(trouble) = self.trouble.take() {
            result.notes = Some(result.notes.into_iter().chain([trouble]).collect::<Vec<_>>().join("\n"));
        }
        let (desk, id) = (self.desk.clone(), self.id);
        // One that was never lent has nothing to report.
        drop(self.lent.take());
        report::end(&desk, id, status, result, Some(&self.admitted), Some(&self.request)).await;
    }

    async fn describe(&self) {
        let (desk, id, request) = (self.desk.clone(), self.id, self.request.clone());
        let described = blocking(move || {
            let shown = desk.get(id)?;
            desk.0.records.describe(&shown, &request).map_err(super::Refused::from)
        });
        if let Err(error) | Ok(Err(error)) = described.await {
            tracing::warn!(delegation.id = %id, error = error.message, "what is lent cannot be described");
        }
    }

    async fn write_log(&mut self, text: &str) {
        self.log += text.len();
        if self.log > LONGEST_LOG {
            return;
        }
        let path = self.desk.0.records.folder(self.id).join("logs").join("remote.log");
        let text = text.to_owned();
        let written = blocking(move || {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())
        });
        let _ = written.await;
    }

    fn step(&mut self, command: &Command) -> Result<(), Box<End>> {
        let now = self.desk.env().now();
        match self.state.step(command, now) {
            Ok(transition) if transition.state.status.has_ended() => Err(self.interrupted(Interrupted::Overdue)),
            Ok(transition) => {
                self.state = transition.state;
                Ok(())
            }
            Err(refusal @ Refusal::BadTerms(_)) => Err(End::ours(Failure {
                code: ErrorCode::Declined,
                message: refusal.to_string(),
                hint: ErrorCode::Declined.hint().to_owned(),
            })),
            Err(refusal) => Err(End::ours(local(refusal.to_string()))),
        }
    }

    async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Result<T, Box<End>> {
        let done = over_or(&self.cancel, &self.desk, self.state.deadline, work).await;
        done.map_err(|interrupted| self.interrupted(interrupted))
    }

    fn interrupted(&self, interrupted: Interrupted) -> Box<End> {
        match interrupted {
            Interrupted::Cancelled => {
                let message = if self.desk.0.stop.is_cancelled() {
                    "the daemon of the machine that lends the folder was stopped"
                } else {
                    "it was cancelled"
                };
                End::because(Command::Cancel, ErrorCode::Cancelled, message.to_owned())
            }
            Interrupted::Overdue => {
                let seconds = self.state.terms.ttl.as_secs();
                let (code, message) = if self.state.is_lent() {
                    (ErrorCode::Expired, format!("the lease of {seconds} seconds was over before the work was"))
                } else {
                    (ErrorCode::StartExpired, format!("the remote did not take it up within {seconds} seconds"))
                };
                End::because(Command::Tick, code, message)
            }
        }
    }
}

/// The conversation with the remote, from its beginning.
fn line(desk: &Delegator, id: DelegationId, request: &Delegate, admitted: &Admitted, keys: &Keyring) -> Line {
    // A remote with git can commit there, and one without it can work all the same.
    let needs_git = admitted.folder.join(".git").exists().then(|| Json::of("optional"));
    let invite = Invite {
        delegation_id: id.to_string(),
        task: Task { description: request.description.clone(), prompt: request.prompt.clone() },
        lease: Offer { ttl_seconds: admitted.terms.ttl.as_secs(), access_mode: admitted.terms.access_mode },
        workspace: Workspace { export_name: format!("awcp/{id}") },
        requirements: Requirements { needs_git, ..Requirements::default() },
    };
    let (env, pace) = (desk.env().clone(), desk.0.options.pace);
    Line::new(&invite, id, &admitted.peer, keys.peer.clone(), admitted.terms, env, pace)
}

/// Tells the remote of a delegation that a daemon before this one lost.
pub(super) fn resumed(
    desk: &Delegator,
    id: DelegationId,
    request: &Delegate,
    admitted: &Admitted,
    keys: &Keyring,
    task: Option<String>,
) -> Line {
    line(desk, id, request, admitted, keys).resumed(task)
}

/// Waits for something, unless the delegation is over first.
async fn over_or<T>(
    cancel: &CancellationToken,
    desk: &Delegator,
    deadline: Timestamp,
    work: impl Future<Output = T>,
) -> Result<T, Interrupted> {
    let overdue = async {
        loop {
            let left = deadline.since(desk.env().now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK_AT_CLOCK)).await;
        }
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Interrupted::Cancelled),
        () = overdue => Err(Interrupted::Overdue),
        done = work => Ok(done),
    }
}

fn brief(text: &str) -> String {
    let line = text.trim().lines().next_back().unwrap_or_default();
    line.chars().filter(|character| !character.is_control()).take(LONGEST_PROGRESS).collect()
}
