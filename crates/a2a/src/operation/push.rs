//! Push notification configs of a task.

use attache_a2a_wire::{
    DeletePushConfig, Fault, GetPushConfig, ListPushConfigs, PushAuthenticationInfo, PushConfig, PushConfigList,
};
use attache_hub::control::{PushSubscription, PushVersion};
use attache_protocol::Secret;

use crate::{
    agent_request::{A2aVersion, AgentRequest},
    error::{Error, Result},
};

impl AgentRequest {
    pub(crate) async fn create_push(&self, config: PushConfig) -> Result<PushConfig> {
        self.tenant(config.tenant.as_deref())?;
        let task = config.task_id.clone().unwrap_or_default();
        let push = self.read_push(config)?;
        let run = self.own_run(&task).await?;
        let kept = self.hub.set_push(self.by(), run.task_run_id, push).await?;
        Ok(shown(kept, &task))
    }

    pub(crate) async fn get_push(&self, request: GetPushConfig) -> Result<PushConfig> {
        self.tenant(request.tenant.as_deref())?;
        self.pushes()?;
        let run = self.own_run(&request.task_id).await?;
        match self.hub.push(self.by(), run.task_run_id, &request.id).await {
            Ok(push) => Ok(shown(push, &request.task_id)),
            Err(error) if error.code.http_status() == 404 => Err(no_config(&request)),
            Err(error) => Err(error.into()),
        }
    }

    /// 0.3 may omit the config's id or use `default`, and means the oldest.
    pub(crate) async fn get_only_push(&self, task: String, id: Option<String>) -> Result<PushConfig> {
        if let Some(id) = id {
            let is_default = id == "default";
            match self.get_push(GetPushConfig { tenant: None, task_id: task.clone(), id }).await {
                Err(error) if is_default && error.http_status() == 404 => {}
                found => return found,
            }
        }
        let request = ListPushConfigs { task_id: task.clone(), ..ListPushConfigs::default() };
        let first = self.list_pushes(request).await?.configs.into_iter().next();
        first.ok_or_else(|| no_config(&GetPushConfig { tenant: None, task_id: task, id: String::new() }))
    }

    pub(crate) async fn list_pushes(&self, request: ListPushConfigs) -> Result<PushConfigList> {
        self.tenant(request.tenant.as_deref())?;
        self.pushes()?;
        let run = self.own_run(&request.task_id).await?;
        let kept = self.hub.pushes(self.by(), run.task_run_id).await?;
        // A task has only a few, so they all fit on one page.
        let configs = kept.into_iter().map(|push| shown(push, &request.task_id)).collect();
        Ok(PushConfigList { configs, next_page_token: String::new() })
    }

    /// Deleting a missing config isn't an error.
    pub(crate) async fn delete_push(&self, request: DeletePushConfig) -> Result<()> {
        self.tenant(request.tenant.as_deref())?;
        self.pushes()?;
        let run = self.own_run(&request.task_id).await?;
        match self.hub.remove_push(self.by(), run.task_run_id, &request.id).await {
            Err(error) if error.code.http_status() != 404 => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    pub(super) fn read_push(&self, config: PushConfig) -> Result<PushSubscription> {
        self.pushes()?;
        if config.url.is_empty() {
            return Err(Error::invalid("url", "must not be empty"));
        }
        let secret = |text: String| Secret::new(text);
        Ok(PushSubscription {
            id: config.id.filter(|id| !id.is_empty()),
            url: config.url,
            token: config.token.filter(|token| !token.is_empty()).map(secret),
            authentication: config.authentication.map(|given| (given.scheme, given.credentials.map(secret))),
            version: match self.version {
                A2aVersion::V10 => PushVersion::V10,
                A2aVersion::V03 => PushVersion::V03,
            },
        })
    }

    fn pushes(&self) -> Result<()> {
        if !self.face.switches.pushes() {
            return Err(Error::fault(
                Fault::PushNotificationNotSupported,
                "This agent doesn't support push notifications.",
            ));
        }
        self.credential("Push notifications require authentication.")
    }
}

fn shown(push: PushSubscription, task: &str) -> PushConfig {
    PushConfig {
        tenant: None,
        id: push.id,
        task_id: Some(task.to_owned()),
        url: push.url,
        token: push.token.map(|token| token.expose().clone()),
        authentication: push.authentication.map(|(scheme, credentials)| PushAuthenticationInfo {
            scheme,
            credentials: credentials.map(|credentials| credentials.expose().clone()),
        }),
    }
}

fn no_config(request: &GetPushConfig) -> Error {
    Error::fault(Fault::TaskNotFound, "Push notification config not found.")
        .with("taskId", &request.task_id)
        .with("configId", &request.id)
}
