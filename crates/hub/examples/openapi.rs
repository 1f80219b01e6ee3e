//! Prints the OpenAPI document of the platform API.
//!
//! Run it after changing a route or a wire type: `cargo run -p attache-hub --example openapi > openapi/openapi.json`.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

fn main() {
    print!("{}", attache_hub::openapi());
}
