//! The service of version 1.0.

use attache_a2a_wire::{
    CancelTask, DeletePushConfig, GetPushConfig, GetTask, ListPushConfigs, ListTasks, PushConfig, SendMessage,
    SubscribeToTask,
    grpc::v1::{self, a2a_service_server::A2aService},
};
use tonic::Request;

use super::{GrpcResult, GrpcStream, answered, asked, streamed};
use crate::{ServerContext, agent_request::A2aVersion, error::Error};

#[derive(Debug, Clone)]
pub(super) struct GrpcServiceV1(pub(super) ServerContext);

#[tonic::async_trait]
impl A2aService for GrpcServiceV1 {
    type SendStreamingMessageStream = GrpcStream<v1::StreamResponse>;
    type SubscribeToTaskStream = GrpcStream<v1::StreamResponse>;

    async fn send_message(&self, request: Request<v1::SendMessageRequest>) -> GrpcResult<v1::SendMessageResponse> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        let sent = asked.send(SendMessage::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, sent.into()))
    }

    async fn send_streaming_message(
        &self,
        request: Request<v1::SendMessageRequest>,
    ) -> GrpcResult<Self::SendStreamingMessageStream> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        let updates = asked.stream(SendMessage::try_from(message).map_err(Error::from)?).await?;
        Ok(streamed(&asked, updates))
    }

    async fn get_task(&self, request: Request<v1::GetTaskRequest>) -> GrpcResult<v1::Task> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        Ok(answered(&asked, asked.get(GetTask::from(message)).await?.into()))
    }

    async fn list_tasks(&self, request: Request<v1::ListTasksRequest>) -> GrpcResult<v1::ListTasksResponse> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        let found = asked.list(ListTasks::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, found.into()))
    }

    async fn cancel_task(&self, request: Request<v1::CancelTaskRequest>) -> GrpcResult<v1::Task> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        let task = asked.cancel(CancelTask::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, task.into()))
    }

    async fn subscribe_to_task(
        &self,
        request: Request<v1::SubscribeToTaskRequest>,
    ) -> GrpcResult<Self::SubscribeToTaskStream> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        let updates = asked.subscribe(SubscribeToTask::from(message)).await?;
        Ok(streamed(&asked, updates))
    }

    async fn create_task_push_notification_config(
        &self,
        request: Request<v1::TaskPushNotificationConfig>,
    ) -> GrpcResult<v1::TaskPushNotificationConfig> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        let config = asked.create_push(PushConfig::try_from(message).map_err(Error::from)?).await?;
        Ok(answered(&asked, config.into()))
    }

    async fn get_task_push_notification_config(
        &self,
        request: Request<v1::GetTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<v1::TaskPushNotificationConfig> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        let config = asked.get_push(GetPushConfig::from(message)).await?;
        Ok(answered(&asked, config.into()))
    }

    async fn list_task_push_notification_configs(
        &self,
        request: Request<v1::ListTaskPushNotificationConfigsRequest>,
    ) -> GrpcResult<v1::ListTaskPushNotificationConfigsResponse> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        let found = asked.list_pushes(ListPushConfigs::from(message)).await?;
        Ok(answered(&asked, found.into()))
    }

    async fn get_extended_agent_card(
        &self,
        request: Request<v1::GetExtendedAgentCardRequest>,
    ) -> GrpcResult<v1::AgentCard> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, _) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        let card = asked.extended_agent_card().await?;
        Ok(answered(&asked, card.into()))
    }

    async fn delete_task_push_notification_config(
        &self,
        request: Request<v1::DeleteTaskPushNotificationConfigRequest>,
    ) -> GrpcResult<()> {
        let tenant = request.get_ref().tenant.clone();
        let (asked, message) = asked(&self.0, request, A2aVersion::V10, &tenant).await?;
        asked.delete_push(DeletePushConfig::from(message)).await?;
        Ok(answered(&asked, ()))
    }
}
