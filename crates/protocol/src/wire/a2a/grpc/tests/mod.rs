//! What other implementations send over gRPC, in the model and back; what cannot be; what stays exact.

mod exact;
mod golden;
mod refused;

use crate::Json;

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}
