//! A model that does as its prompt says: `cargo run -p attache-adapter --example stub-model`, then point a host at the address
//! it prints, for example with ANTHROPIC_BASE_URL, and ask for `WRITE:hello.txt`.

fn main() -> std::process::ExitCode {
    attache_testkit::stub_model::main()
}
