//! The life of one delegation: asks the rules what may happen, and does what they say in the order in which they say it.

use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf, time::Duration};

use attache_protocol::{
    DelegationId, Json, Timestamp,
    rules::delegation::{DelegationCommand, DelegationEffect, DelegationRefusal, DelegationState, DelegationStatus},
    wire::{
        awcp::{self, AwcpErrorCode, AwcpInvite, AwcpTask, LeaseOffer, LeaseRequirements, OfferedWorkspace},
        delegation::{DelegateRequest, DelegationFailure, DelegationOutcome},
    },
};
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    end::{DelegationEnd, local, no_key},
    end_notice,
    export::{self, ActiveExport, ExportRequest},
    keyring::DelegationKeys,
    peer::{RemoteConversation, RemoteEvent},
    policy::DelegationAdmission,
    publish, report,
    route::{self, ExportRoute},
    service::{DelegatorService, blocking},
    tunnel,
};

pub(super) struct LeaseTask {
    service: DelegatorService,
    id: DelegationId,
    request: DelegateRequest,
    admitted: DelegationAdmission,
    keys: DelegationKeys,
    state: DelegationState,
    cancel: CancellationToken,
    conversation: RemoteConversation,
    export: Option<ActiveExport>,
    baseline: Option<JoinHandle<()>>,
    log: usize,
    /// What went wrong on this machine, for the report.
    local_fault: Option<String>,
}

/// Something that ends the wait for something else.
enum LeaseInterrupt {
    Cancelled,
    Overdue,
}

/// The longest log of what a remote writes.
const MAX_LOG: usize = 16 << 20;
const MAX_PROGRESS: usize = 500;
/// A machine that slept has another time than its timers.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// A tunnel lives a little longer than the lease, whose end is decided here.
const TUNNEL_GRACE: Duration = Duration::from_secs(60);

// === impl LeaseTask ===

impl LeaseTask {
    pub(super) fn new(
        desk: DelegatorService,
        id: DelegationId,
        request: DelegateRequest,
        admitted: DelegationAdmission,
        keys: DelegationKeys,
        state: DelegationState,
        cancel: CancellationToken,
    ) -> Self {
        let line = open_conversation(&desk, id, &request, &admitted, &keys);
        let (lent, baseline, log, trouble) = (None, None, 0, None);
        Self {
            service: desk,
            id,
            request,
            admitted,
            keys,
            state,
            cancel,
            conversation: line,
            export: lent,
            baseline,
            log,
            local_fault: trouble,
        }
    }

    pub(super) async fn run(mut self, go: oneshot::Receiver<()>) {
        let publishing = publish::start(&self.service, self.id, &self.keys, self.cancel.clone());
        let end = match self.run_until_end(go).await {
            Err(end) => end,
            Ok(never) => match never {},
        };
        self.end(end).await;
        if let Some(publishing) = publishing {
            publishing.finish().await;
        }
    }

    /// Everything until the end, which is the only way out.
    async fn run_until_end(
        &mut self,
        go: oneshot::Receiver<()>,
    ) -> Result<std::convert::Infallible, Box<DelegationEnd>> {
        // However long it is queued, its time does not run. The sender is dropped only together with the desk.
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(self.interrupted(LeaseInterrupt::Cancelled)),
            _ = go => {}
        }
        self.state = self.state.released(self.service.env().now());
        let way = route::choose(
            &self.admitted.peer,
            self.admitted.hub.as_ref().map(|(hub, _)| hub.as_str()),
            self.service.0.exports.address,
        );
        let way = way.map_err(DelegationEnd::local_failure)?;
        loop {
            let (desk, id) = (self.service.clone(), self.id);
            let met = or_interrupted(&self.cancel, &desk, self.state.deadline, self.conversation.connect()).await;
            match met.map_err(|interrupted| self.interrupted(interrupted))? {
                Ok(()) => break,
                Err(RemoteEvent::Unreachable(reason)) => {
                    desk.set_waits_for(id, Some(format!("the way to the remote: {reason}")));
                    let rested =
                        or_interrupted(&self.cancel, &desk, self.state.deadline, self.conversation.back_off()).await;
                    rested.map_err(|interrupted| self.interrupted(interrupted))?;
                }
                Err(RemoteEvent::Lost(failure)) => return Err(DelegationEnd::failed(failure)),
                Err(_) => {}
            }
        }
        // It is made while the remote thinks; the folder is lent when it is there.
        let (desk, id, admitted, request) =
            (self.service.clone(), self.id, self.admitted.clone(), self.request.clone());
        self.baseline = Some(tokio::task::spawn_blocking(move || report::baseline(&desk, id, &admitted, &request)));
        self.step(&DelegationCommand::Invite)?;
        self.service.show(self.id, |shown| {
            shown.status = DelegationStatus::Invited;
            shown.waits_for = None;
        });
        self.service.note(self.id, "invite", None);
        self.service.persist(self.id).await;
        loop {
            let heard =
                or_interrupted(&self.cancel, &self.service, self.state.deadline, self.conversation.next()).await;
            let heard = heard.map_err(|interrupted| self.interrupted(interrupted))?;
            self.react(heard, &way).await?;
        }
    }

    async fn react(&mut self, heard: RemoteEvent, way: &ExportRoute) -> Result<(), Box<DelegationEnd>> {
        let (desk, id) = (self.service.clone(), self.id);
        match heard {
            RemoteEvent::Task(task) => {
                desk.show(id, |shown| shown.task_id = Some(task));
                desk.persist(id).await;
            }
            RemoteEvent::Queued => {
                desk.set_waits_for(id, Some("the remote to take it up; it may be offline".to_owned()));
            }
            RemoteEvent::Unreachable(reason) => {
                desk.set_waits_for(id, Some(format!("the way to the remote: {reason}")))
            }
            RemoteEvent::Question(what) => desk.set_waits_for(id, Some(what)),
            RemoteEvent::Accept(accept) => self.accepted(*accept, way).await?,
            RemoteEvent::Working if self.state.is_exported() => {
                if self.state.status != DelegationStatus::Running {
                    self.step(&DelegationCommand::Work)?;
                    desk.note(id, "work", None);
                    desk.show(id, |shown| shown.status = DelegationStatus::Running);
                    desk.persist(id).await;
                }
                desk.set_waits_for(id, None);
            }
            // It looks at the invitation.
            RemoteEvent::Working => desk.set_waits_for(id, Some("the remote's answer".to_owned())),
            RemoteEvent::Message(text) => {
                self.write_log(&format!("{text}\n")).await;
                desk.show(id, |shown| shown.progress = Some(brief(&text)));
            }
            RemoteEvent::Chunk(text) => {
                self.write_log(&text).await;
                if let Some(line) = text.trim().lines().next_back() {
                    desk.show(id, |shown| shown.progress = Some(brief(line)));
                }
            }
            RemoteEvent::Done(done) if self.state.is_exported() => return Err(DelegationEnd::done(done)),
            RemoteEvent::Done(_) => {
                return Err(DelegationEnd::local_failure(DelegationFailure {
                    code: AwcpErrorCode::TaskFailed,
                    message: "the remote says that it is done and was never given the folder".to_owned(),
                    hint: "Ask its owner which version of AWCP it speaks.".to_owned(),
                }));
            }
            RemoteEvent::Failed(failure) => return Err(DelegationEnd::failed(failure)),
            RemoteEvent::Lost(failure) => return Err(DelegationEnd::local_failure(failure)),
            RemoteEvent::ReadTask => {}
        }
        Ok(())
    }

    /// ACCEPT came: the terms are agreed, the folder is lent, START goes out.
    async fn accepted(&mut self, accept: awcp::AwcpAccept, way: &ExportRoute) -> Result<(), Box<DelegationEnd>> {
        let (desk, id) = (self.service.clone(), self.id);
        if self.state.status != DelegationStatus::Invited {
            return Ok(());
        }
        let constraints = accept.remote_constraints.clone().unwrap_or_default();
        self.step(&DelegationCommand::Accept(constraints))?;
        let terms = self.state.terms;
        desk.agree(id, terms);
        desk.note(id, "accept", Some(&accept.remote_mount.mount_point));
        desk.show(id, |shown| {
            shown.status = DelegationStatus::Accepted;
            shown.access_mode = terms.access_mode;
            shown.ttl_seconds = terms.ttl.as_secs();
            shown.remote_mount_point = Some(accept.remote_mount.mount_point.clone());
            shown.waits_for = None;
        });
        desk.persist(id).await;
        if let Some(baseline) = self.baseline.take() {
            let _ = self.or_ended(baseline).await?;
        }
        let lent = self.open_export(accept.remote_mount.client_key, accept.remote_mount.mount_point.into()).await?;
        let (lent, mount) = match way {
            ExportRoute::Direct { host, port } => {
                let mount = lent.mount(host.clone(), *port, None);
                (lent, mount)
            }
            ExportRoute::Tunnel { hub } => {
                let options = self.keys.hub.clone().ok_or_else(|| DelegationEnd::local_failure(no_key(hub)))?;
                let shown = publish::shown(&desk, id)
                    .map_err(|refused| DelegationEnd::local_failure(local(refused.message)))?;
                let expires_at = desk.env().now().plus(terms.ttl).plus(TUNNEL_GRACE);
                let opening = tunnel::open(&options, (id, &shown), expires_at, desk.env());
                let opened = self.or_ended(opening).await?.map_err(DelegationEnd::local_failure)?;
                let given = opened.descriptor.clone();
                let served = opened.serve(desk.0.exports.server.clone(), &desk.0.tasks);
                // Where the remote makes its own end of the tunnel; only its name is needed.
                let mount = lent.mount("localhost".to_owned(), 22, Some(given));
                (lent.with_tunnel(served), mount)
            }
        };
        // Whatever happens from here on, there is something to take back.
        self.export = Some(lent);
        self.step(&DelegationCommand::Start)?;
        let started = export::start(id, self.state.deadline, terms, mount);
        let (now, expires_at) = (desk.env().now(), self.state.deadline);
        desk.show(id, |shown| {
            shown.status = DelegationStatus::Started;
            shown.started_at = Some(now);
            shown.expires_at = Some(expires_at);
        });
        desk.note(id, "start", Some(&format!("{} until {expires_at}", terms.access_mode)));
        desk.persist(id).await;
        self.describe().await;
        self.conversation.start(&started);
        Ok(())
    }

    async fn open_export(
        &mut self,
        client_key: Option<String>,
        seen_at: PathBuf,
    ) -> Result<ActiveExport, Box<DelegationEnd>> {
        let (desk, id, admitted, request) =
            (self.service.clone(), self.id, self.admitted.clone(), self.request.clone());
        let terms = self.state.terms;
        let lending = blocking(move || {
            if let Err(error) = desk.0.records.link_folder(id, &admitted.folder) {
                tracing::warn!(delegation.id = %id, %error, "the link to the folder cannot be made");
            }
            let loan = ExportRequest {
                delegation: id,
                folder: &admitted.folder,
                before: &desk.before(id),
                terms,
                rules: export::rules(&admitted, &request),
                limits: &admitted.export,
                client_key,
                seen_at,
            };
            desk.0.exports.open(loan, desk.0.options.audit.clone())
        });
        let lent = self.or_ended(lending).await?;
        lent.map_err(|refused| DelegationEnd::local_failure(local(refused.message)))?
            .map_err(DelegationEnd::local_failure)
    }

    async fn end(mut self, mut end: Box<DelegationEnd>) {
        // What failed on this side the remote need not know, or may not want to.
        if end.command == DelegationCommand::Complete
            && let Some(failure) = self.export.as_ref().and_then(ActiveExport::incomplete)
        {
            end = end.incomplete(failure);
        }
        let now = self.service.env().now();
        let transition = self.state.step(&end.command, now);
        let (status, mut effects) = match transition {
            Ok(transition) => (transition.state.status, transition.effects),
            // It was not lent, so there is nothing to take back.
            Err(_) => (DelegationStatus::Error, vec![DelegationEffect::Report]),
        };
        if end.is_ours
            && self.state.status != DelegationStatus::Created
            && !effects.iter().any(|it| matches!(it, DelegationEffect::Tell(_)))
        {
            let last = effects.len().saturating_sub(1);
            effects.insert(last, DelegationEffect::Tell(AwcpErrorCode::Cancelled));
        }
        let why = end.result.error.as_ref().map_or("it is done", |failure| &failure.message).to_owned();
        for effect in effects {
            match effect {
                DelegationEffect::Revoke => self.revoke().await,
                DelegationEffect::Tell(code) => self.notify_remote(code, &why).await,
                DelegationEffect::Report => self.report(status, end.result.clone()).await,
            }
        }
    }

    async fn revoke(&mut self) {
        if let Some(lent) = self.export.take() {
            self.local_fault = lent.revoke().await;
            self.service.note(self.id, "revoke", None);
            if let Some(trouble) = self.local_fault.clone() {
                self.service.note(self.id, "trouble", Some(&trouble));
                self.write_log(&format!("attache: {trouble}\n")).await;
            }
        }
    }

    /// The folder is safe by now, so the remote's slowness holds up nobody for long.
    async fn notify_remote(&mut self, code: AwcpErrorCode, why: &str) {
        if self.conversation.was_never_sent() {
            return;
        }
        let (desk, id) = (&self.service, self.id);
        let line = std::mem::replace(
            &mut self.conversation,
            open_conversation(desk, id, &self.request, &self.admitted, &self.keys),
        );
        let telling = end_notice::notify_end(desk, id, line, code, why.to_owned());
        let _ = tokio::time::timeout(desk.0.options.pace.tell, telling).await;
    }

    async fn report(&mut self, status: DelegationStatus, mut result: DelegationOutcome) {
        if let Some(trouble) = self.local_fault.take() {
            result.notes = Some(result.notes.into_iter().chain([trouble]).collect::<Vec<_>>().join("\n"));
        }
        let (desk, id) = (self.service.clone(), self.id);
        // One that was never lent has nothing to report.
        drop(self.export.take());
        report::end(&desk, id, status, result, Some(&self.admitted), Some(&self.request)).await;
    }

    async fn describe(&self) {
        let (desk, id, request) = (self.service.clone(), self.id, self.request.clone());
        let described = blocking(move || {
            let shown = desk.get(id)?;
            desk.0.records.describe(&shown, &request).map_err(super::DelegatorRefusal::from)
        });
        if let Err(error) | Ok(Err(error)) = described.await {
            tracing::warn!(delegation.id = %id, error = error.message, "what is lent cannot be described");
        }
    }

    async fn write_log(&mut self, text: &str) {
        self.log += text.len();
        if self.log > MAX_LOG {
            return;
        }
        let path = self.service.0.records.folder(self.id).join("logs").join("remote.log");
        let text = text.to_owned();
        let written = blocking(move || {
            let mut file = std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
            file.write_all(text.as_bytes())
        });
        let _ = written.await;
    }

    fn step(&mut self, command: &DelegationCommand) -> Result<(), Box<DelegationEnd>> {
        let now = self.service.env().now();
        match self.state.step(command, now) {
            Ok(transition) if transition.state.status.has_ended() => Err(self.interrupted(LeaseInterrupt::Overdue)),
            Ok(transition) => {
                self.state = transition.state;
                Ok(())
            }
            Err(refusal @ DelegationRefusal::BadTerms(_)) => Err(DelegationEnd::local_failure(DelegationFailure {
                code: AwcpErrorCode::Declined,
                message: refusal.to_string(),
                hint: AwcpErrorCode::Declined.hint().to_owned(),
            })),
            Err(refusal) => Err(DelegationEnd::local_failure(local(refusal.to_string()))),
        }
    }

    async fn or_ended<T>(&self, work: impl Future<Output = T>) -> Result<T, Box<DelegationEnd>> {
        let done = or_interrupted(&self.cancel, &self.service, self.state.deadline, work).await;
        done.map_err(|interrupted| self.interrupted(interrupted))
    }

    fn interrupted(&self, interrupted: LeaseInterrupt) -> Box<DelegationEnd> {
        match interrupted {
            LeaseInterrupt::Cancelled => {
                let message = if self.service.0.stop.is_cancelled() {
                    "the daemon of the machine that lends the folder was stopped"
                } else {
                    "it was cancelled"
                };
                DelegationEnd::because(DelegationCommand::Cancel, AwcpErrorCode::Cancelled, message.to_owned())
            }
            LeaseInterrupt::Overdue => {
                let seconds = self.state.terms.ttl.as_secs();
                let (code, message) = if self.state.is_exported() {
                    (AwcpErrorCode::Expired, format!("the lease of {seconds} seconds was over before the work was"))
                } else {
                    (AwcpErrorCode::StartExpired, format!("the remote did not take it up within {seconds} seconds"))
                };
                DelegationEnd::because(DelegationCommand::Tick, code, message)
            }
        }
    }
}

/// The conversation with the remote, from its beginning.
fn open_conversation(
    desk: &DelegatorService,
    id: DelegationId,
    request: &DelegateRequest,
    admitted: &DelegationAdmission,
    keys: &DelegationKeys,
) -> RemoteConversation {
    // A remote with git can commit there, and one without it can work all the same.
    let needs_git = admitted.folder.join(".git").exists().then(|| Json::of("optional"));
    let invite = AwcpInvite {
        delegation_id: id.to_string(),
        task: AwcpTask { description: request.description.clone(), prompt: request.prompt.clone() },
        lease: LeaseOffer { ttl_seconds: admitted.terms.ttl.as_secs(), access_mode: admitted.terms.access_mode },
        workspace: OfferedWorkspace { export_name: format!("awcp/{id}") },
        requirements: LeaseRequirements { needs_git, ..LeaseRequirements::default() },
    };
    let (env, pace) = (desk.env().clone(), desk.0.options.pace);
    RemoteConversation::new(&invite, id, &admitted.peer, keys.peer.clone(), admitted.terms, env, pace)
}

/// Tells the remote of a delegation that a daemon before this one lost.
pub(super) fn resumed(
    desk: &DelegatorService,
    id: DelegationId,
    request: &DelegateRequest,
    admitted: &DelegationAdmission,
    keys: &DelegationKeys,
    task: Option<String>,
) -> RemoteConversation {
    open_conversation(desk, id, request, admitted, keys).resumed(task)
}

/// Waits for something, unless the delegation is over first.
async fn or_interrupted<T>(
    cancel: &CancellationToken,
    desk: &DelegatorService,
    deadline: Timestamp,
    work: impl Future<Output = T>,
) -> Result<T, LeaseInterrupt> {
    let overdue = async {
        loop {
            let left = deadline.since(desk.env().now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(CLOCK_CHECK_INTERVAL)).await;
        }
    };
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(LeaseInterrupt::Cancelled),
        () = overdue => Err(LeaseInterrupt::Overdue),
        done = work => Ok(done),
    }
}

fn brief(text: &str) -> String {
    let line = text.trim().lines().next_back().unwrap_or_default();
    line.chars().filter(|character| !character.is_control()).take(MAX_PROGRESS).collect()
}
