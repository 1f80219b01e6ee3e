//! The service of version 0.3.

use attache_a2a_wire::{
    CancelTask, DeletePushConfig, GetPushConfig, GetTask, ListPushConfigs, PushConfig, SendMessage, SubscribeToTask,
    grpc::v03::{self, a2a_service_server::A2aService},
    v03 as json,
};
use attache_protocol::Code;
use tonic::Request;

use super::{GrpcResult, GrpcStream, answered, asked, streamed};
use crate::{
    ServerContext,
    agent_request::A2aVersion,
    error::{Error, Kind},
};

#[derive(Debug, Clone)]
pub(super) struct GrpcServiceV03(pub(super) ServerContext);

#[tonic::async_trait]
impl A2aService for GrpcServiceV03 {
    type SendStreamingMessageStream = GrpcStream<v03::StreamResponse>;
    type TaskSubscriptionStream = GrpcStream<v03::StreamResponse>;

    async fn send_message(&self, request: Request<v03::SendMessageRequest>) -> GrpcResult<v03::SendMessageResponse> {
        let (asked, message) = asked(&self.0, request, A2aVersion::V03, "").await?;
        let sent = asked.send(SendMessage::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, sent.into()))
    }

    async fn send_streaming_message(
        &self,
        request: Request<v03::SendMessageRequest>,
    ) -> GrpcResult<Self::SendStreamingMessageStream> {
        let (asked, message) = asked(&self.0, request, A2aVersion::V03, "").await?;
        let updates = asked.stream(SendMessage::try_from(message).map_err(Error::from)?).await?;
        Ok(streamed(&asked, updates))
    }

    async fn get_task(&self, request: Request<v03::GetTaskRequest>) -> GrpcResult<v03::Task> {
        let (asked, message) = asked(&self.0, request, A2aVersion::V03, "").await?;
        let task = asked.get(GetTask::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, task.into()))
    }

    async fn cancel_task(&self, request: Request<v03::CancelTaskRequest>) -> GrpcResult<v03::Task> {
        let (asked, message) = asked(&self.0, request, A2aVersion::V03, "").await?;
        let task = asked.cancel(CancelTask::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, task.into()))
    }

    async fn task_subscription(
        &self,
        request: Request<v03::TaskSubscriptionRequest>,
    ) -> GrpcResult<Self::TaskSubscriptionStream> {
        let (asked, message) = asked(&self.0, request, A2aVersion::V03, "").await?;
        let updates = asked.subscribe(SubscribeToTask::try_from(message).map_err(Error::from)?).await?;
        Ok(streamed(&asked, updates))
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<v03::CreateTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<v03::TaskPushNotificationConfig> {
        let (asked, message) = asked(&self.0, request, A2aVersion::V03, "").await?;
        let config = asked.create_push(PushConfig::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, config.into()))
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<v03::GetTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<v03::TaskPushNotificationConfig> {
        let (asked, message) = asked(&self.0, request, A2aVersion::V03, "").await?;
        let config = asked.get_push(GetPushConfig::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, config.into()))
    }

    async fn list_task_push_notification_config(
        &self,
        request: Request<v03::ListTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<v03::ListTaskPushNotificationConfigResponse> {
        let (asked, message) = asked(&self.0, request, A2aVersion::V03, "").await?;
        let found = asked.list_pushes(ListPushConfigs::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, found.into()))
    }

    /// The extended card. The public one is at its well-known path.
    async fn get_agent_card(&self, request: Request<v03::GetAgentCardRequest>) -> GrpcResult<v03::AgentCard> {
        let (asked, _) = asked(&self.0, request, A2aVersion::V03, "").await?;
        let card = asked.extended_agent_card().await?;
        let old = json::AgentCardV03::of_card(&card)
            .ok_or_else(|| Error::new(Kind::Hub(Code::Internal), "The card has no 0.3 interface."))?;
        Ok(answered(&asked, old.into()))
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<v03::DeleteTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<()> {
        let (asked, message) = asked(&self.0, request, A2aVersion::V03, "").await?;
        asked.delete_push(DeletePushConfig::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, ()))
    }
}
