//! What every command has in common: help, version, exit codes.

use crate::harness::Home;

#[test]
fn the_version_goes_to_standard_output() {
    let ran = Home::new().attache(&["--version"]).succeeds();
    assert_eq!(ran.stdout, concat!("attache ", env!("CARGO_PKG_VERSION"), "\n"));
    assert_eq!(ran.stderr, "");
}
