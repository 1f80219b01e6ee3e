//! What is answered instead of a result, read from each binding's own form.

use std::collections::BTreeMap;

use attache_a2a_wire::RpcError;
use serde::Deserialize;
use tonic::Code;

/// A refusal: in which form it came, and what all forms say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpokenRefusal {
    pub form: RefusalForm,
    pub message: String,
    /// Of `google.rpc.ErrorInfo`.
    pub reason: String,
    pub domain: String,
    pub facts: BTreeMap<String, String>,
    /// Of `google.rpc.BadRequest`.
    pub violations: Vec<(String, String)>,
    /// `WWW-Authenticate`.
    pub challenge: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalForm {
    Rpc { http: u16, code: i32 },
    Rest { http: u16, code: u16, status: String },
    Grpc(Code),
}

#[derive(Deserialize)]
struct RestBody {
    error: RestError,
}

#[derive(Deserialize)]
struct RestError {
    code: u16,
    status: String,
    message: String,
    details: Vec<RefusalDetail>,
}

#[derive(Deserialize)]
#[serde(tag = "@type")]
enum RefusalDetail {
    #[serde(rename = "type.googleapis.com/google.rpc.ErrorInfo")]
    Info {
        reason: String,
        domain: String,
        #[serde(default)]
        metadata: BTreeMap<String, String>,
    },
    #[serde(rename = "type.googleapis.com/google.rpc.BadRequest")]
    Bad {
        #[serde(rename = "fieldViolations")]
        violations: Vec<Violation>,
    },
}

#[derive(Deserialize)]
struct Violation {
    field: String,
    description: String,
}

// === impl SpokenRefusal ===

impl SpokenRefusal {
    pub fn new(form: RefusalForm, message: String) -> Self {
        Self {
            form,
            message,
            reason: String::new(),
            domain: String::new(),
            facts: BTreeMap::new(),
            violations: Vec::new(),
            challenge: None,
        }
    }

    pub(super) fn of_rpc(http: u16, error: RpcError, challenge: Option<String>) -> Self {
        let details = error.data.map(|data| data.parse().unwrap()).unwrap_or_default();
        let form = RefusalForm::Rpc { http, code: error.code };
        Self { challenge, ..Self::new(form, error.message).detailed(details) }
    }

    pub(super) fn of_rest(http: u16, body: &str, challenge: Option<String>) -> Self {
        let RestBody { error } = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
        let form = RefusalForm::Rest { http, code: error.code, status: error.status };
        Self { challenge, ..Self::new(form, error.message).detailed(error.details) }
    }

    fn detailed(mut self, details: Vec<RefusalDetail>) -> Self {
        for detail in details {
            match detail {
                RefusalDetail::Info { reason, domain, metadata } => {
                    (self.reason, self.domain, self.facts) = (reason, domain, metadata);
                }
                RefusalDetail::Bad { violations } => {
                    self.violations = violations.into_iter().map(|it| (it.field, it.description)).collect();
                }
            }
        }
        self
    }

    /// What every form must say alike, in one text.
    pub fn says(&self) -> String {
        format!("{} ({}) {:?} {:?}: {}", self.reason, self.domain, self.facts, self.violations, self.message)
    }
}
