//! The lifecycle of one delegation: asks the rules what happens next, and carries out their effects in order.

use std::{io::Write as _, os::unix::fs::OpenOptionsExt as _, path::PathBuf, time::Duration};

use attache_protocol::{
    DelegationId, Json, Timestamp,
    rules::delegation::{DelegationCommand, DelegationEffect, DelegationRefusal, DelegationState, DelegationStatus},
    wire::{
        awcp::{
            self, ARCHIVE, AwcpErrorCode, AwcpInvite, AwcpTask, LeaseOffer, LeaseRequirements, OfferedWorkspace,
            TransportChoice,
        },
        delegation::{DelegateRequest, DelegationFailure, DelegationOutcome},
    },
};
use tokio::{sync::oneshot, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    conversation::LeaseConversation,
    end::{DelegationEnd, local, no_key},
    end_notice,
    export::{self, ActiveExport, ExportRequest},
    keyring::DelegationKeys,
    peer::{RemoteConversation, RemoteEvent, guard_for},
    policy::DelegationAdmission,
    publish,
    records::StagedFolders,
    report,
    route::{self, ExportRoute},
    service::{DelegatorService, blocking},
    staging, tunnel,
};
use crate::compat::conversation::{CompatConversation, CompatTerms};

pub(super) struct LeaseTask {
    service: DelegatorService,
    id: DelegationId,
    request: DelegateRequest,
    admitted: DelegationAdmission,
    keys: DelegationKeys,
    state: DelegationState,
    cancel: CancellationToken,
    conversation: LeaseConversation,
    /// `None` without a hub, or without a key for it.
    publishing: Option<publish::DelegationPublisher>,
    /// Opens once the folder contains what the remote is to see.
    gate: Option<oneshot::Receiver<()>>,
    export: Option<ActiveExport>,
    baseline: Option<JoinHandle<()>>,
    log: usize,
    /// Changes that failed on this machine, for the report.
    local_fault: Option<String>,
}

/// Ends any wait early.
enum LeaseInterrupt {
    Cancelled,
    Overdue,
}

/// The size limit of a remote's log.
const MAX_LOG: usize = 16 << 20;
const MAX_PROGRESS: usize = 500;
/// After the machine was suspended, timers lag behind the clock.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// The tunnel outlives the lease a little: this machine decides when the lease ends.
const TUNNEL_GRACE: Duration = Duration::from_secs(60);

// === impl LeaseTask ===

impl LeaseTask {
    pub(super) fn new(
        service: DelegatorService,
        id: DelegationId,
        request: DelegateRequest,
        admitted: DelegationAdmission,
        keys: DelegationKeys,
        state: DelegationState,
        cancel: CancellationToken,
    ) -> Self {
        let conversation = open_conversation(&service, id, &request, &admitted, &keys);
        Self {
            service,
            id,
            request,
            admitted,
            keys,
            state,
            cancel,
            conversation,
            publishing: None,
            gate: None,
            export: None,
            baseline: None,
            log: 0,
            local_fault: None,
        }
    }

    /// Exports the folder only after this.
    #[must_use]
    pub(super) fn gated(self, gate: Option<oneshot::Receiver<()>>) -> Self {
        Self { gate, ..self }
    }

    pub(super) async fn run(mut self, go: oneshot::Receiver<()>) {
        self.publishing = publish::start(&self.service, self.id, &self.keys, self.cancel.clone());
        let end = match self.run_until_end(go).await {
            Err(end) => end,
            Ok(never) => match never {},
        };
        let publishing = self.publishing.take();
        self.end(end).await;
        if let Some(publishing) = publishing {
            publishing.finish().await;
        }
    }

    /// Runs until the delegation ends. The end is the only way out, hence `Infallible`.
    async fn run_until_end(
        &mut self,
        go: oneshot::Receiver<()>,
    ) -> Result<std::convert::Infallible, Box<DelegationEnd>> {
        // Time in the queue doesn't count towards the lease. The sender is dropped only together with the service.
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(self.interrupted(LeaseInterrupt::Cancelled)),
            _ = go => {}
        }
        self.state = self.state.released(self.service.env().now());
        let (hub, listening) =
            (self.admitted.hub.as_ref().map(|(hub, _)| hub.as_str()), self.service.0.exports.address);
        let route = match self.request.awcp_compat {
            // What the remote gets is packed on this machine.
            true => Ok(route::to_this_machine(listening)),
            false => route::choose(&self.admitted.peer, hub, listening),
        };
        let route = route.map_err(DelegationEnd::local_failure)?;
        loop {
            let (service, id) = (self.service.clone(), self.id);
            let connected =
                or_interrupted(&self.cancel, &service, self.state.deadline, self.conversation.connect()).await;
            match connected.map_err(|interrupted| self.interrupted(interrupted))? {
                Ok(()) => break,
                Err(RemoteEvent::Unreachable(reason)) => {
                    service.set_waits_for(id, Some(format!("a connection to the remote: {reason}")));
                    let waited =
                        or_interrupted(&self.cancel, &service, self.state.deadline, self.conversation.back_off()).await;
                    waited.map_err(|interrupted| self.interrupted(interrupted))?;
                }
                Err(RemoteEvent::Lost(failure)) => {
                    if !self.change_key().await {
                        return Err(DelegationEnd::failed(failure));
                    }
                }
                Err(_) => {}
            }
        }
        // The baseline is taken while the remote considers the invitation. The folder is exported once it is complete.
        let (service, id, admitted, request) =
            (self.service.clone(), self.id, self.admitted.clone(), self.request.clone());
        self.baseline = Some(tokio::task::spawn_blocking(move || report::baseline(&service, id, &admitted, &request)));
        self.step(&DelegationCommand::Invite)?;
        self.service.show(self.id, |shown| {
            shown.status = DelegationStatus::Invited;
            shown.waits_for = None;
        });
        self.service.note(self.id, "invite", None);
        self.service.persist(self.id).await;
        loop {
            let event =
                or_interrupted(&self.cancel, &self.service, self.state.deadline, self.conversation.next()).await;
            let event = event.map_err(|interrupted| self.interrupted(interrupted))?;
            if matches!(event, RemoteEvent::Lost(_)) && self.change_key().await {
                continue;
            }
            self.react(event, &route).await?;
        }
    }

    /// Looks the keys up again after the conversation failed. If there is another one by now, begins the conversation again
    /// with it, and returns true: the owner key of this machine's hub is only used while that hub is running, and a hub may
    /// also hide an agent from callers without a key.
    async fn change_key(&mut self) -> bool {
        if self.state.is_exported() {
            return false;
        }
        let Ok(keys) = self.service.credentials(&self.admitted).await else { return false };
        if keys.peer.is_none() || keys.peer == self.keys.peer {
            return false;
        }
        self.keys = keys;
        self.conversation = open_conversation(&self.service, self.id, &self.request, &self.admitted, &self.keys);
        if self.publishing.is_none() {
            self.publishing = publish::start(&self.service, self.id, &self.keys, self.cancel.clone());
        }
        true
    }

    async fn react(&mut self, event: RemoteEvent, route: &ExportRoute) -> Result<(), Box<DelegationEnd>> {
        let (service, id) = (self.service.clone(), self.id);
        match event {
            RemoteEvent::Task(task) => {
                service.show(id, |shown| shown.task_id = Some(task));
                service.persist(id).await;
            }
            RemoteEvent::Queued => {
                service.set_waits_for(id, Some("the remote to pick it up (it may be offline)".to_owned()));
            }
            RemoteEvent::Unreachable(reason) => {
                service.set_waits_for(id, Some(format!("a connection to the remote: {reason}")));
            }
            RemoteEvent::Question(question) => service.set_waits_for(id, Some(question)),
            RemoteEvent::Accept(accept) => self.accepted(*accept, route).await?,
            RemoteEvent::Working if self.state.is_exported() => {
                if self.state.status != DelegationStatus::Running {
                    self.step(&DelegationCommand::Work)?;
                    service.note(id, "work", None);
                    service.show(id, |shown| shown.status = DelegationStatus::Running);
                    service.persist(id).await;
                }
                service.set_waits_for(id, None);
            }
            // The remote considers the invitation.
            RemoteEvent::Working => service.set_waits_for(id, Some("the remote's answer".to_owned())),
            RemoteEvent::Message(text) => {
                self.write_log(&format!("{text}\n")).await;
                service.show(id, |shown| shown.progress = Some(brief(&text)));
            }
            RemoteEvent::Chunk(text) => {
                self.write_log(&text).await;
                if let Some(line) = text.trim().lines().next_back() {
                    service.show(id, |shown| shown.progress = Some(brief(line)));
                }
            }
            RemoteEvent::Done(done) if self.state.is_exported() => return Err(DelegationEnd::done(done)),
            RemoteEvent::Done(_) => {
                return Err(DelegationEnd::local_failure(DelegationFailure {
                    code: AwcpErrorCode::TaskFailed,
                    message: "the remote reported DONE before it received the folder".to_owned(),
                    hint: "Ask its owner which version of AWCP it supports.".to_owned(),
                }));
            }
            RemoteEvent::Failed(failure) => return Err(DelegationEnd::failed(failure)),
            RemoteEvent::Lost(failure) => return Err(DelegationEnd::local_failure(failure)),
            RemoteEvent::ReadTask => {}
        }
        Ok(())
    }

    /// ACCEPT arrived: the terms are agreed, the folder is exported, START is sent.
    async fn accepted(&mut self, accept: awcp::AwcpAccept, route: &ExportRoute) -> Result<(), Box<DelegationEnd>> {
        let (service, id) = (self.service.clone(), self.id);
        if self.state.status != DelegationStatus::Invited {
            return Ok(());
        }
        let constraints = accept.remote_constraints.clone().unwrap_or_default();
        let (sandbox, proof) = (constraints.sandbox_profile, constraints.sandbox_proof.clone());
        self.step(&DelegationCommand::Accept(constraints))?;
        let terms = self.state.terms;
        let wanted = self.request.transport;
        let transport = TransportChoice::agree(wanted, &accept.remote_mount.transports);
        let transport = transport.ok_or_else(|| {
            let wanted = wanted.map_or("any of our transports", TransportChoice::as_str);
            DelegationEnd::local_failure(DelegationFailure {
                code: AwcpErrorCode::Declined,
                message: format!("the remote can't mount folders with {wanted}"),
                hint: "Delegate without --transport, or with a different one.".to_owned(),
            })
        })?;
        service.agree(id, terms);
        service.note(id, "accept", Some(&accept.remote_mount.mount_point));
        service.show(id, |shown| {
            shown.status = DelegationStatus::Accepted;
            shown.access_mode = terms.access_mode;
            shown.ttl_seconds = terms.ttl.as_secs();
            shown.remote_mount_point = Some(accept.remote_mount.mount_point.clone());
            shown.transport = Some(if self.request.awcp_compat { ARCHIVE } else { transport }.to_owned());
            (shown.sandbox, shown.sandbox_proof) = (sandbox, proof);
            shown.waits_for = None;
        });
        service.persist(id).await;
        if let Some(gate) = self.gate.take()
            && self.or_ended(gate).await?.is_err()
        {
            return Err(DelegationEnd::local_failure(local("the folder was never filled".to_owned())));
        }
        if let Some(baseline) = self.baseline.take() {
            let _ = self.or_ended(baseline).await?;
        }
        let export = self.open_export(accept.remote_mount.client_key, accept.remote_mount.mount_point.into()).await?;
        let (export, mount) = match route {
            ExportRoute::Direct { host, port } => {
                let mount = export.mount(transport, host.clone(), *port, None);
                (export, mount)
            }
            ExportRoute::Tunnel { hub } => {
                let options = self.keys.hub.clone().ok_or_else(|| DelegationEnd::local_failure(no_key(hub)))?;
                let shown = publish::shown(&service, id)
                    .map_err(|refused| DelegationEnd::local_failure(local(refused.message)))?;
                let expires_at = service.env().now().plus(terms.ttl).plus(TUNNEL_GRACE);
                let opening = tunnel::open(&options, (id, &shown), expires_at, service.env());
                let opened = self.or_ended(opening).await?.map_err(DelegationEnd::local_failure)?;
                let access = opened.descriptor.clone();
                let served = opened.serve(service.0.exports.server.clone(), &service.0.tasks);
                // The remote opens its own end of the tunnel locally, so the host name is only a label.
                let mount = export.mount(transport, "localhost".to_owned(), 22, Some(access));
                (export.with_tunnel(served), mount)
            }
        };
        // From here on, every end has an export to revoke.
        self.export = Some(export);
        self.step(&DelegationCommand::Start)?;
        let started = export::start(id, self.state.deadline, terms, mount);
        let (now, expires_at) = (service.env().now(), self.state.deadline);
        service.show(id, |shown| {
            shown.status = DelegationStatus::Started;
            shown.started_at = Some(now);
            shown.expires_at = Some(expires_at);
        });
        service.note(id, "start", Some(&format!("{} until {expires_at}", terms.access_mode)));
        service.persist(id).await;
        self.describe().await;
        self.conversation.start(&started);
        Ok(())
    }

    async fn open_export(
        &mut self,
        client_key: Option<String>,
        seen_at: PathBuf,
    ) -> Result<ActiveExport, Box<DelegationEnd>> {
        let (service, id, admitted, request) =
            (self.service.clone(), self.id, self.admitted.clone(), self.request.clone());
        let (terms, is_staged) = (self.state.terms, request.staged);
        if is_staged {
            service.set_waits_for(id, Some("the copy of the folder".to_owned()));
        }
        let (cancel, deadline, env) = (self.cancel.clone(), self.state.deadline, service.env().clone());
        let opening = blocking(move || {
            let staged = if is_staged {
                let go_on = || !cancel.is_cancelled() && env.now() < deadline;
                Some(staging::make(&service, id, &admitted, &request, &go_on)?)
            } else {
                None
            };
            let (folder, before, copy_of) = match staged {
                Some(StagedFolders { copy, base }) => (copy, base, Some(admitted.folder.clone())),
                None => (admitted.folder.clone(), service.before(id), None),
            };
            if let Err(error) = service.0.records.link_folder(id, &folder) {
                tracing::warn!(delegation.id = %id, %error, "failed to create the link to the folder");
            }
            let export = ExportRequest {
                delegation: id,
                folder: &folder,
                before: &before,
                terms,
                rules: export::rules(&admitted, &request),
                limits: &admitted.export,
                client_key,
                seen_at,
                copy_of,
            };
            service.0.exports.open(export, service.0.options.audit.clone())
        });
        let opened = self.or_ended(opening).await?;
        let opened = opened
            .map_err(|refused| DelegationEnd::local_failure(local(refused.message)))?
            .map_err(DelegationEnd::local_failure)?;
        if is_staged {
            self.service.set_waits_for(id, None);
            self.service.set_apart(id);
        }
        Ok(opened)
    }

    async fn end(mut self, mut end: Box<DelegationEnd>) {
        // The remote might not know, or not say, which of its changes failed on this side.
        if end.command == DelegationCommand::Complete
            && let Some(failure) = self.export.as_ref().and_then(ActiveExport::incomplete)
        {
            end = end.incomplete(failure);
        }
        let now = self.service.env().now();
        let transition = self.state.step(&end.command, now);
        let (status, mut effects) = match transition {
            Ok(transition) => (transition.state.status, transition.effects),
            // It was never exported, so there is nothing to revoke.
            Err(_) => (DelegationStatus::Error, vec![DelegationEffect::Report]),
        };
        if end.is_ours
            && self.state.status != DelegationStatus::Created
            && !effects.iter().any(|it| matches!(it, DelegationEffect::Tell(_)))
        {
            let last = effects.len().saturating_sub(1);
            effects.insert(last, DelegationEffect::Tell(AwcpErrorCode::Cancelled));
        }
        let reason =
            end.result.error.as_ref().map_or("the delegation is complete", |failure| &failure.message).to_owned();
        for effect in effects {
            match effect {
                DelegationEffect::Revoke => self.revoke().await,
                DelegationEffect::Tell(code) => self.notify_remote(code, &reason).await,
                DelegationEffect::Report => self.report(status, end.result.clone()).await,
            }
        }
    }

    async fn revoke(&mut self) {
        if let Some(export) = self.export.take() {
            self.local_fault = export.revoke().await;
            self.service.note(self.id, "revoke", None);
            if let Some(fault) = self.local_fault.clone() {
                self.service.note(self.id, "trouble", Some(&fault));
                self.write_log(&format!("attache: {fault}\n")).await;
            }
        }
    }

    /// The folder is already revoked, so a slow remote delays nothing important.
    async fn notify_remote(&mut self, code: AwcpErrorCode, reason: &str) {
        if self.conversation.was_never_sent() {
            return;
        }
        let (service, id) = (&self.service, self.id);
        let conversation = std::mem::replace(
            &mut self.conversation,
            open_conversation(service, id, &self.request, &self.admitted, &self.keys),
        );
        let notice = end_notice::notify_end(service, id, conversation, code, reason.to_owned());
        let _ = tokio::time::timeout(service.0.options.pace.tell, notice).await;
    }

    async fn report(&mut self, status: DelegationStatus, mut result: DelegationOutcome) {
        if let Some(fault) = self.local_fault.take() {
            result.notes = Some(result.notes.into_iter().chain([fault]).collect::<Vec<_>>().join("\n"));
        }
        let (service, id) = (self.service.clone(), self.id);
        // One that was never exported has nothing to revoke.
        drop(self.export.take());
        report::end(&service, id, status, result, Some(&self.admitted), Some(&self.request)).await;
    }

    async fn describe(&self) {
        let (service, id, request) = (self.service.clone(), self.id, self.request.clone());
        let described = blocking(move || {
            let shown = service.get(id)?;
            service.0.records.describe(&shown, &request).map_err(super::DelegatorRefusal::from)
        });
        if let Err(error) | Ok(Err(error)) = described.await {
            tracing::warn!(delegation.id = %id, error = error.message, "failed to write the description of the export");
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
                    "the daemon on the delegating machine was stopped"
                } else {
                    "the delegation was cancelled"
                };
                let end =
                    DelegationEnd::because(DelegationCommand::Cancel, AwcpErrorCode::Cancelled, message.to_owned());
                if self.state.is_exported() { end } else { end.unshared() }
            }
            LeaseInterrupt::Overdue => {
                let seconds = self.state.terms.ttl.as_secs();
                let (code, message) = if self.state.is_exported() {
                    (AwcpErrorCode::Expired, format!("the {seconds}-second lease expired before the work was done"))
                } else {
                    (AwcpErrorCode::StartExpired, format!("the remote did not pick it up within {seconds} seconds"))
                };
                DelegationEnd::because(DelegationCommand::Tick, code, message)
            }
        }
    }
}

/// Opens a new conversation with the remote.
fn open_conversation(
    service: &DelegatorService,
    id: DelegationId,
    request: &DelegateRequest,
    admitted: &DelegationAdmission,
    keys: &DelegationKeys,
) -> LeaseConversation {
    // Git is optional: a remote with git can commit in the folder, one without it can still work.
    let needs_git = admitted.folder.join(".git").exists().then(|| Json::of("optional"));
    let invite = AwcpInvite {
        delegation_id: id.to_string(),
        task: AwcpTask { description: request.description.clone(), prompt: request.prompt.clone() },
        lease: LeaseOffer { ttl_seconds: admitted.terms.ttl.as_secs(), access_mode: admitted.terms.access_mode },
        workspace: OfferedWorkspace { export_name: format!("awcp/{id}") },
        requirements: LeaseRequirements {
            needs_git,
            mount_transports: TransportChoice::offered(request.transport),
            ..LeaseRequirements::default()
        },
    };
    let (env, pace) = (service.env().clone(), service.0.options.pace);
    if request.awcp_compat {
        let terms = CompatTerms {
            url: admitted.peer.url.clone(),
            guard: guard_for(&admitted.peer.url).pinned(admitted.peer.pin),
            credential: keys.peer_key.clone(),
            copies: service.0.options.copies.clone(),
            folders: service.0.archives.clone(),
            env,
            pace,
        };
        return LeaseConversation::Compat(Box::new(CompatConversation::new(&invite, id, terms)));
    }
    let (peer, credentials, terms) = (&admitted.peer, keys.peer.clone(), admitted.terms);
    LeaseConversation::A2a(Box::new(RemoteConversation::new(&invite, id, peer, credentials, terms, env, pace)))
}

/// The conversation of a delegation that was live when an earlier daemon died.
pub(super) fn resumed(
    service: &DelegatorService,
    id: DelegationId,
    request: &DelegateRequest,
    admitted: &DelegationAdmission,
    keys: &DelegationKeys,
    task: Option<String>,
) -> LeaseConversation {
    open_conversation(service, id, request, admitted, keys).resumed(task)
}

/// Waits for `work`, unless the delegation is cancelled or its deadline passes first.
async fn or_interrupted<T>(
    cancel: &CancellationToken,
    service: &DelegatorService,
    deadline: Timestamp,
    work: impl Future<Output = T>,
) -> Result<T, LeaseInterrupt> {
    let overdue = async {
        loop {
            let left = deadline.since(service.env().now());
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
