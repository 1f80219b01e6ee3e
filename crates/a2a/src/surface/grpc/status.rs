//! Errors as gRPC statuses, with the details in `google.rpc.Status`.

use attache_a2a_wire::DOMAIN;
use axum::{body::Body, http::Response};
use prost::Message as _;
use prost_types::Any;
use tonic::{Code, Status, metadata::MetadataMap};

use super::LIMIT;
use crate::error::{Error, Kind};

#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatusMessage {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ErrorInfoMessage {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(map = "string, string", tag = "3")]
    metadata: std::collections::HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct BadRequestMessage {
    #[prost(message, repeated, tag = "1")]
    field_violations: Vec<FieldViolation>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FieldViolation {
    #[prost(string, tag = "1")]
    field: String,
    #[prost(string, tag = "2")]
    description: String,
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let code = code(error.grpc_status());
        let metadata = error.facts().iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let info = ErrorInfoMessage { reason: error.reason(), domain: DOMAIN.to_owned(), metadata };
        let mut details = vec![any("google.rpc.ErrorInfo", info.encode_to_vec())];
        let violations = error.violations().iter();
        let field_violations: Vec<FieldViolation> = violations
            .map(|(field, description)| FieldViolation { field: field.clone(), description: description.clone() })
            .collect();
        if !field_violations.is_empty() {
            details.push(any("google.rpc.BadRequest", BadRequestMessage { field_violations }.encode_to_vec()));
        }
        let status = RpcStatusMessage { code: i32::from(code), message: error.message.clone(), details };
        Self::with_details_and_metadata(code, error.message, status.encode_to_vec().into(), MetadataMap::new())
    }
}

/// Adds reasons to errors of the gRPC library, which gives none and reports invalid requests as internal errors.
pub(super) async fn explained(response: Response<Body>) -> Response<Body> {
    let Some(status) = Status::from_header_map(response.headers()) else { return response };
    let error = match status.code() {
        Code::Ok => return response,
        _ if !status.details().is_empty() => return response,
        Code::Internal => malformed(),
        Code::OutOfRange => {
            let text = format!("The message is larger than {LIMIT} bytes. Send larger content as a `url`.");
            Error::new(Kind::Hub(attache_protocol::Code::TooLarge), text)
        }
        Code::Unimplemented => Error::new(Kind::Method, format!("Not supported: {}", status.message())),
        _ => return response,
    };
    Status::from(error).into_http()
}

pub(super) fn malformed() -> Error {
    Error::new(Kind::Request, "This isn't a message of this method, or it is nested too deeply.")
}

fn any(name: &str, value: Vec<u8>) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value }
}

fn code(name: &str) -> Code {
    match name {
        "NOT_FOUND" => Code::NotFound,
        "FAILED_PRECONDITION" => Code::FailedPrecondition,
        "INVALID_ARGUMENT" => Code::InvalidArgument,
        "UNIMPLEMENTED" => Code::Unimplemented,
        "UNAUTHENTICATED" => Code::Unauthenticated,
        "PERMISSION_DENIED" => Code::PermissionDenied,
        "RESOURCE_EXHAUSTED" => Code::ResourceExhausted,
        "UNAVAILABLE" => Code::Unavailable,
        _ => Code::Internal,
    }
}
