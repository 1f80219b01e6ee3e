//! gRPC messages of other implementations: conversion to the model and back, errors, exactness, and memory.

mod exact;
mod golden;
mod refused;
mod weight;

use attache_protocol::Json;

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}
