//! gRPC messages of other implementations: conversion to the model and back, errors, and exactness.

mod exact;
mod golden;
mod refused;

use attache_protocol::Json;

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}
