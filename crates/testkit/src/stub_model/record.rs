//! What was asked of the model, for tests to look at.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Map, Value};

/// How many requests are kept; a model that is asked for ever must not fill the memory.
const MAX_RECORDED: usize = 500;

#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    pub method: String,
    /// With the query.
    pub path: String,
    /// Names in lower case, keys included: they are a test's own.
    pub headers: Map<String, Value>,
    /// Null if there was none or it was not JSON.
    pub body: Value,
}

#[derive(Debug, Default)]
pub(super) struct RequestRecord {
    inner: Mutex<RequestRecordState>,
}

#[derive(Debug, Default)]
struct RequestRecordState {
    requests: VecDeque<RecordedRequest>,
    /// How often each script has failed.
    failures: HashMap<String, u32>,
    served: u64,
}

// === impl RecordedRequest ===

impl RecordedRequest {
    /// One header, or nothing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn to_json(&self) -> Value {
        serde_json::json!({"method": self.method, "path": self.path, "headers": self.headers, "body": self.body})
    }
}

// === impl RequestRecord ===

impl RequestRecord {
    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.lock().requests.iter().cloned().collect()
    }

    /// Keeps the request and answers with its number.
    pub(super) fn add(&self, request: RecordedRequest) -> u64 {
        let mut inner = self.lock();
        if inner.requests.len() == MAX_RECORDED {
            inner.requests.pop_front();
        }
        inner.requests.push_back(request);
        inner.served += 1;
        inner.served
    }

    pub(super) fn failures(&self, script: &str) -> u32 {
        self.lock().failures.get(script).copied().unwrap_or_default()
    }

    pub(super) fn failed(&self, script: &str) {
        *self.lock().failures.entry(script.to_owned()).or_default() += 1;
    }

    fn lock(&self) -> MutexGuard<'_, RequestRecordState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
