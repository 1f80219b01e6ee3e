//! Errors in the form of each binding: protocol faults, invalid parameters, or refusals of the hub.

use attache_a2a_wire::{DOMAIN, Fault, InvalidField as Refused, RpcError};
use attache_hub::Error as HubError;
use attache_protocol::{Code, Json, secret::mask};
use serde::Serialize;

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Error {
    pub(crate) kind: Kind,
    pub(crate) message: String,
    /// Seconds until a retry may succeed.
    pub(crate) retry_after: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    Fault(Fault, Vec<(&'static str, String)>),
    /// Invalid members, each with its problem.
    Invalid(Vec<(String, String)>),
    /// The body has the wrong media type, which has an HTTP status of its own.
    MediaType,
    /// The body isn't JSON.
    Parse,
    /// It is JSON, but not a request.
    Request,
    /// No such method or path.
    Method,
    Hub(Code),
}

/// `google.rpc.ErrorInfo` and `google.rpc.BadRequest` as JSON.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ErrorDetails<'a> {
    Info {
        #[serde(rename = "@type")]
        kind: &'static str,
        reason: &'a str,
        domain: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<serde_json::Map<String, serde_json::Value>>,
    },
    Bad {
        #[serde(rename = "@type")]
        kind: &'static str,
        #[serde(rename = "fieldViolations")]
        field_violations: Vec<BadRequestViolation<'a>>,
    },
}

#[derive(Debug, Serialize)]
struct BadRequestViolation<'a> {
    field: &'a str,
    description: &'a str,
}

#[derive(Debug, Serialize)]
struct RestErrorResponse<'a> {
    error: RestErrorMembers<'a>,
}

#[derive(Debug, Serialize)]
struct RestErrorMembers<'a> {
    code: u16,
    status: &'static str,
    message: &'a str,
    details: Vec<ErrorDetails<'a>>,
}

const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

// === impl Error ===

impl Error {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after: None }
    }

    pub(crate) fn fault(fault: Fault, message: impl Into<String>) -> Self {
        Self::new(Kind::Fault(fault, Vec::new()), message)
    }

    /// Adds a fact that a program can act on. Anything that looks like a secret is masked.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl AsRef<str>) -> Self {
        if let Kind::Fault(_, facts) = &mut self.kind {
            facts.push((name, mask(value.as_ref()).into_owned()));
        }
        self
    }

    pub(crate) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        let (field, problem) = (field.into(), problem.into());
        let message = format!("`{field}` {problem}.");
        Self::new(Kind::Invalid(vec![(field, problem)]), message)
    }

    /// Unknown tasks and other callers' tasks get the same answer.
    pub(crate) fn no_task(id: &str) -> Self {
        Self::fault(Fault::TaskNotFound, "Task not found.").with("taskId", id)
    }

    pub(crate) const fn rpc_code(&self) -> i32 {
        match &self.kind {
            Kind::Fault(fault, _) => fault.rpc_code(),
            Kind::Invalid(_) => -32602,
            Kind::MediaType => Fault::ContentTypeNotSupported.rpc_code(),
            Kind::Parse => -32700,
            Kind::Request => -32600,
            Kind::Method => -32601,
            Kind::Hub(code) => match code.http_status() {
                400 | 404 | 413 => -32602,
                401 | 403 | 408 | 421 | 429 => -32600,
                _ => -32603,
            },
        }
    }

    /// For HTTP+JSON.
    pub(crate) const fn http_status(&self) -> u16 {
        match &self.kind {
            Kind::Fault(fault, _) => fault.http_status(),
            Kind::Invalid(_) | Kind::Parse | Kind::Request => 400,
            Kind::MediaType => 415,
            Kind::Method => 404,
            Kind::Hub(code) => code.http_status(),
        }
    }

    /// For JSON-RPC: a method's own errors have status 200. Authentication and rate limit errors also have an HTTP
    /// status.
    pub(crate) const fn rpc_http_status(&self) -> u16 {
        match &self.kind {
            Kind::Hub(code) if matches!(code.http_status(), 401 | 403 | 408 | 413 | 429 | 503) => code.http_status(),
            _ => 200,
        }
    }

    /// The name of the gRPC status, also shown by HTTP+JSON.
    pub(crate) const fn grpc_status(&self) -> &'static str {
        match &self.kind {
            Kind::Fault(fault, _) => fault.grpc_status(),
            Kind::Invalid(_) | Kind::Parse | Kind::Request | Kind::MediaType => "INVALID_ARGUMENT",
            Kind::Method => "UNIMPLEMENTED",
            Kind::Hub(code) => match code.http_status() {
                400 | 415 | 421 => "INVALID_ARGUMENT",
                401 => "UNAUTHENTICATED",
                403 => "PERMISSION_DENIED",
                404 => "NOT_FOUND",
                409 => "FAILED_PRECONDITION",
                408 => "DEADLINE_EXCEEDED",
                413 | 429 => "RESOURCE_EXHAUSTED",
                503 => "UNAVAILABLE",
                _ => "INTERNAL",
            },
        }
    }

    /// The reason for `ErrorInfo`.
    pub(crate) fn reason(&self) -> String {
        match &self.kind {
            Kind::Fault(fault, _) => fault.reason().to_owned(),
            Kind::Invalid(_) => "INVALID_PARAMS".to_owned(),
            Kind::MediaType => Fault::ContentTypeNotSupported.reason().to_owned(),
            Kind::Parse => "INVALID_JSON".to_owned(),
            Kind::Request => "INVALID_REQUEST".to_owned(),
            Kind::Method => "METHOD_NOT_FOUND".to_owned(),
            Kind::Hub(code) => code.as_str().to_uppercase(),
        }
    }

    pub(crate) fn facts(&self) -> &[(&'static str, String)] {
        match &self.kind {
            Kind::Fault(_, facts) => facts,
            _ => &[],
        }
    }

    pub(crate) fn violations(&self) -> &[(String, String)] {
        match &self.kind {
            Kind::Invalid(violations) => violations,
            _ => &[],
        }
    }

    /// The same, with members named by their path from the top of the request.
    #[must_use]
    pub(crate) fn below(mut self, outer: &str, inner: impl Fn(&str) -> bool) -> Self {
        if let Kind::Invalid(violations) = &mut self.kind {
            for (field, _) in violations.iter_mut().filter(|(field, _)| inner(field)) {
                let path = format!("{outer}.{field}");
                self.message = self.message.replace(&format!("`{field}`"), &format!("`{path}`"));
                *field = path;
            }
        }
        self
    }

    fn details<'a>(&'a self, reason: &'a str) -> Vec<ErrorDetails<'a>> {
        let metadata: serde_json::Map<_, _> =
            self.facts().iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
        let info = ErrorDetails::Info {
            kind: ERROR_INFO,
            reason,
            domain: DOMAIN,
            metadata: (!metadata.is_empty()).then_some(metadata),
        };
        let violations = self.violations();
        if violations.is_empty() {
            return vec![info];
        }
        let field_violations =
            violations.iter().map(|(field, description)| BadRequestViolation { field, description }).collect();
        vec![ErrorDetails::Bad { kind: BAD_REQUEST, field_violations }, info]
    }

    /// In the form of JSON-RPC.
    pub(crate) fn rpc(&self) -> RpcError {
        let reason = self.reason();
        let data = Some(Json::of(&self.details(&reason)));
        RpcError { code: self.rpc_code(), message: self.message.clone(), data }
    }

    /// The body of HTTP+JSON.
    pub(crate) fn rest(&self) -> Json {
        let reason = self.reason();
        let (code, status) = (self.http_status(), self.grpc_status());
        Json::of(&RestErrorResponse {
            error: RestErrorMembers { code, status, message: &self.message, details: self.details(&reason) },
        })
    }
}

impl From<Refused> for Error {
    fn from(Refused { field, problem }: Refused) -> Self {
        Self::invalid(field, problem)
    }
}

/// The next step, for callers who may be outsiders and read the A2A documentation.
const fn hint(code: Code) -> &'static str {
    match code {
        Code::Unauthenticated => "Send an API key or token of the hub as `Authorization: Bearer …`. See /docs/a2a.",
        Code::InvalidRequest | Code::NoSuchPath | Code::MethodNotAllowed => "See /docs/a2a.",
        other => other.hint(),
    }
}

impl From<HubError> for Error {
    fn from(error: HubError) -> Self {
        let hint = error.hint.as_deref().unwrap_or(hint(error.code));
        let message = if hint.is_empty() { error.message.to_string() } else { format!("{} {hint}", error.message) };
        let kind = match error.code {
            Code::UnsupportedType => Kind::MediaType,
            Code::InvalidJson => Kind::Parse,
            // The URL of a push notification is a parameter like any other, not a matter of permissions.
            Code::EgressRefused | Code::InvalidRequest => match error.field {
                Some(field) => return Self::invalid(field.field, field.problem),
                None => Kind::Hub(error.code),
            },
            code => Kind::Hub(code),
        };
        Self { kind, message, retry_after: error.retry_after }
    }
}
