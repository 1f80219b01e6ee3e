//! The command driver.

use attache_adapter::driver::CommandDriver;

use crate::world::{AdapterWorld, done, failed, task};

async fn world(program: &str, args: &[&str]) -> AdapterWorld {
    AdapterWorld::start(CommandDriver::new(program, args), |_| {}).await
}

#[tokio::test]
async fn the_text_goes_to_the_standard_input() {
    let world = world("tr", &["a-z", "A-Z"]).await;
    assert_eq!(world.run(&task("shout, é")).await, done("SHOUT, é"));
    let long = "word ".repeat(400_000);
    let reply = world.run(&task(&long)).await;
    assert!(reply["output"]["text"].as_str().unwrap().starts_with("WORD WORD"), "no deadlock with both pipes full");
    world.stop().await;
}

#[tokio::test]
async fn a_program_need_not_read_its_input() {
    let world = world("echo", &["ignored"]).await;
    assert_eq!(world.run(&task(&"x".repeat(1_000_000))).await, done("ignored\n"));
    world.stop().await;
}

#[tokio::test]
async fn the_text_replaces_an_argument() {
    let world = world("printf", &["%s|", "before", "{}", "{}x", "{}"]).await;
    assert_eq!(world.run(&task("$(id) 'q'")).await, done("before|$(id) 'q'|{}x|$(id) 'q'|"));
    let expected = "the task's text has 200000 bytes, but an argument can hold 130048; start the adapter without `{}`, so \
                    that `printf` gets the text on its standard input";
    assert_eq!(world.run(&task(&"x".repeat(200_000))).await, failed("rejected", expected));
    world.stop().await;
}

#[tokio::test]
async fn the_exit_status_counts() {
    let world = world("sh", &["-c", "cat; exit 5"]).await;
    let expected = "`sh` exited with status 5. Its standard error is empty. End of its output:\nhm";
    assert_eq!(world.run(&task("hm")).await, failed("task_failed", expected));
    world.stop().await;
}

#[tokio::test]
async fn a_program_that_cannot_start_is_reported_with_the_fix() {
    let missing = world("no-such-program-here", &[]).await;
    let expected = "can't start `no-such-program-here`: No such file or directory (os error 2); install it, or \
                    start the adapter with the program's full path";
    assert_eq!(missing.run(&task("x")).await, failed("host_crashed", expected));
    missing.stop().await;

    let folder = world("/", &[]).await;
    let expected = "can't start `/`: Permission denied (os error 13); make it executable (chmod +x), or start \
                    the adapter with another program";
    assert_eq!(folder.run(&task("x")).await, failed("host_crashed", expected));
    folder.stop().await;
}
