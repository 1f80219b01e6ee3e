//! Callbacks and deliveries: URL checks, delivery history, resending and signing secrets.

use std::collections::HashMap;

use attache_client::egress::EgressFailure;
use attache_protocol::{
    Code, DeliveryId, RunId,
    wire::{
        delivery::{Delivery, DeliveryList, DeliverySecret, DeliveryState},
        run::CallbackEvent,
    },
};
use attache_store::record::{
    AgentRef, RunRecord,
    delivery::{self, DeliveryFilter, RunCallback},
};

use crate::{
    Error, Handle, Principal, Result, check,
    control::PageRequest,
    deliveries::SecretSubject,
    error::{about, about_list},
    identity::{AccessVerdict, Action, Permit},
    render,
    visible_page::VisiblePage,
};

/// Filters for deliveries. All given members must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryQuery {
    pub state: Option<DeliveryState>,
    pub run: Option<RunId>,
    pub page: PageRequest,
}

/// What to do with a host name that has no address yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnresolvedHostPolicy {
    Refused,
    Allowed,
}

const WHAT: &str = "delivery";

impl Handle {
    /// Only whoever owns the run or its agent sees the complete URL, which often has a secret in its path. Others see where it
    /// leads, and resend it without knowing the rest.
    async fn show_delivery(
        &self,
        by: &Principal,
        run: &RunRecord,
        delivery: delivery::DeliveryRecord,
    ) -> Result<Delivery> {
        let may_resend = by.verdict(Action::ResendDelivery) != AccessVerdict::No;
        let is_shown = may_resend && (by.own_runs().matches(run) || self.owns_agent(by, run).await?);
        Ok(if is_shown { render::delivery(delivery) } else { render::delivery_origin(delivery) })
    }

    async fn owns_agent(&self, by: &Principal, run: &RunRecord) -> Result<bool> {
        let account = self.store().account(by.tenant, AgentRef::Id(run.agent)).await.map_err(about("agent"))?;
        Ok(by.is_owner(account.owner))
    }

    /// Newest first. An agent sees the deliveries of runs it created.
    pub async fn deliveries(&self, by: &Principal, query: DeliveryQuery) -> Result<DeliveryList> {
        let permit = by.may(Action::SeeDeliveries)?;
        let mut visible = VisiblePage::new(query.page.page()?);
        let filter = DeliveryFilter { state: query.state, run: query.run };
        let mut runs = HashMap::new();
        while let Some(asked) = visible.next_read(self, by).await {
            let failed = about_list(WHAT, &asked);
            let listed = self.store().deliveries(by.tenant, filter.clone(), asked).await.map_err(failed)?;
            let mut seen = Vec::with_capacity(listed.items.len());
            for delivery in &listed.items {
                let run = self.find_run(&permit, delivery.run).await;
                seen.push(run.is_ok());
                if let Ok(run) = run {
                    runs.insert(run.id, run);
                }
            }
            visible.take(listed, &seen);
        }
        let (found, next_cursor) = visible.finish();
        let mut deliveries = Vec::with_capacity(found.len());
        for delivery in found {
            let run = runs.get(&delivery.run).ok_or_else(|| Error::not_found(WHAT))?;
            deliveries.push(self.show_delivery(by, run, delivery).await?);
        }
        Ok(DeliveryList { deliveries, next_cursor })
    }

    pub async fn delivery(&self, by: &Principal, delivery: DeliveryId) -> Result<Delivery> {
        let (delivery, run) = self.find_delivery(&by.may(Action::SeeDeliveries)?, delivery).await?;
        self.show_delivery(by, &run, delivery).await
    }

    /// Sends it once more, now, even if it was already delivered or its target is paused. The id stays the same.
    pub async fn resend_delivery(&self, by: &Principal, delivery: DeliveryId) -> Result<Delivery> {
        let (_, run) = self.find_delivery(&by.may(Action::ResendDelivery)?, delivery).await?;
        self.urgent().add(delivery, self.now());
        let resent = self.store().resend_delivery(self.context(by), delivery).await;
        if resent.is_err() {
            self.urgent().take(delivery);
        }
        self.show_delivery(by, &run, resent.map_err(about(WHAT))?).await
    }

    /// The secret that signs the caller's own deliveries or, with an agent, that agent's approval webhook.
    pub async fn delivery_secret(&self, by: &Principal, agent: Option<&str>) -> Result<DeliverySecret> {
        let permit = by.may(Action::SeeDeliverySecret)?;
        let subject = match agent {
            None => SecretSubject::of(permit.by()),
            Some(agent) => self.agent_subject(by, agent).await?,
        };
        Ok(DeliverySecret { secret: self.signers().secret(by.tenant, &subject).expose().clone() })
    }

    /// A person's secret is private. The organisation's is for those who may set its agents' webhooks.
    async fn agent_subject(&self, by: &Principal, agent: &str) -> Result<SecretSubject> {
        let permit = by.may(Action::EditAgent)?;
        let account = self.store().account(by.tenant, check::agent_ref("agent_id", agent)?).await;
        let owner = account.map_err(about("agent"))?.owner;
        if owner != by.user && (owner.is_some() || !permit.covers_others()) {
            return Err(Error::forbidden("The agent belongs to someone else, and so does its webhook secret."));
        }
        Ok(SecretSubject::of_agent(owner))
    }

    /// A delivery belongs to its run.
    async fn find_delivery(
        &self,
        permit: &Permit<'_>,
        id: DeliveryId,
    ) -> Result<(delivery::DeliveryRecord, RunRecord)> {
        let found = self.store().delivery(permit.by().tenant, id).await.map_err(about(WHAT))?;
        let run = self.find_run(permit, found.run).await.map_err(|_| Error::not_found(WHAT))?;
        Ok((found, run))
    }

    /// The callback of a new run, after its URL has been checked.
    pub(crate) async fn callback(
        &self,
        url: Option<String>,
        events: Option<Vec<CallbackEvent>>,
    ) -> Result<Option<RunCallback>> {
        let events = events.unwrap_or_default();
        let Some(url) = url else {
            return if events.is_empty() {
                Ok(None)
            } else {
                Err(Error::invalid("callback_events", "requires a `callback_url`"))
            };
        };
        self.check_egress("callback_url", &url).await?;
        Ok(Some(RunCallback { url, approvals: events.contains(&CallbackEvent::Approval) }))
    }

    /// Checks a webhook URL and the addresses it resolves to now.
    pub(crate) async fn check_egress(&self, field: &str, url: &str) -> Result<()> {
        self.egress_of(field, url, UnresolvedHostPolicy::Refused).await
    }

    /// The same for a name that may get its address later. It is resolved again before every call.
    pub(crate) async fn check_later_egress(&self, field: &str, url: &str) -> Result<()> {
        self.egress_of(field, url, UnresolvedHostPolicy::Allowed).await
    }

    async fn egress_of(&self, field: &str, url: &str, unresolved: UnresolvedHostPolicy) -> Result<()> {
        // The caller sent back the redacted URL it was shown.
        if url.split_once('?').is_some_and(|(_, query)| query.contains("***")) {
            return Err(Error::invalid(field, "contains `***` in place of a redacted secret; send the complete URL"));
        }
        let guard = &self.options().egress;
        let refused = |code: Code, why: String| {
            Error::in_field(code, field, &format!("is not allowed: {}", why.trim_end_matches('.')))
        };
        let target = guard.check(url).map_err(|why| {
            let code = if why.is_malformed() { Code::InvalidRequest } else { Code::EgressRefused };
            refused(code, why.to_string())
        })?;
        match guard.resolve(&target).await {
            Err(EgressFailure::Unresolved { .. }) if unresolved == UnresolvedHostPolicy::Allowed => Ok(()),
            Err(why @ EgressFailure::Unresolved { .. }) => {
                let why = format!("can't be looked up: {}", why.to_string().trim_end_matches('.'));
                Err(Error::in_field(Code::EgressRefused, field, &why))
            }
            Err(why) => Err(refused(Code::EgressRefused, why.to_string())),
            Ok(_) => Ok(()),
        }
    }
}
