//! Names for ids: whom and what the ids of records stand for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The answer of `GET /api/v1/names`. Ids that nobody knows are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NameList {
    pub names: BTreeMap<String, String>,
}
