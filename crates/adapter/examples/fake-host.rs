//! An agent program that does as its prompt says: `cargo run -p attache-adapter --example fake-host -- text 'WRITE:hello.txt'`.
//! The first argument is how it speaks: acp, claude, codex, cursor, text or jsonl.

fn main() -> std::process::ExitCode {
    attache_testkit::fake_host::main()
}
