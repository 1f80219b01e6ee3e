//! Display names for ids.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The response of `GET /api/v1/names`. Unknown ids are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NameList {
    pub names: BTreeMap<String, String>,
}
