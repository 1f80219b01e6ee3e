//! Artifacts that a task hands over through `ATTACHE_ARTIFACTS`.

use serde_json::{Value, json};

use crate::world::{AdapterWorld, failed, task, with};

fn handed_over(paths: &[&str]) -> Value {
    let refs: Vec<Value> = paths.iter().map(|path| json!({"path": path})).collect();
    json!({"success": true, "output": {"text": "", "artifact_refs": refs}})
}

#[tokio::test]
async fn listed_files_are_handed_over() {
    let world = AdapterWorld::shell().await;
    let own = world.cwd.to_str().unwrap();
    let script = "mkdir -p out; echo 1 > out/a.txt; echo 2 > 'b c.txt'; ln -sf out/a.txt link
                  printf 'out/a.txt\\n\\n%s\\r\\n./out/../link\\n' \"$PWD/b c.txt\" >> $ATTACHE_ARTIFACTS";
    let known = with(task(script), "cwd", own);
    assert_eq!(world.run(&known).await, handed_over(&["out/a.txt", "b c.txt", "out/a.txt"]));
    // Without a `cwd` in the request, the runtime doesn't know the base of a relative path.
    let absolute = ["out/a.txt", "b c.txt", "out/a.txt"].map(|path| format!("{own}/{path}"));
    assert_eq!(world.run(&task(script)).await, handed_over(&absolute.each_ref().map(String::as_str)));
    world.stop().await;
}

#[tokio::test]
async fn a_listed_file_that_cannot_be_handed_over_fails_the_task() {
    let world = AdapterWorld::shell().await;
    let cases = [
        (
            "echo missing >> $ATTACHE_ARTIFACTS",
            "the task names `missing` in $ATTACHE_ARTIFACTS, but: No such file or directory (os error 2)",
        ),
        (
            "echo /etc/passwd >> $ATTACHE_ARTIFACTS",
            "the task names `/etc/passwd` in $ATTACHE_ARTIFACTS; only files below its working folder are handed over",
        ),
        (
            "ln -s /etc/passwd out; echo out >> $ATTACHE_ARTIFACTS",
            "the task names `out` in $ATTACHE_ARTIFACTS; only files below its working folder are handed over",
        ),
        (
            "mkdir folder; echo folder >> $ATTACHE_ARTIFACTS",
            "the task names `folder` in $ATTACHE_ARTIFACTS, but that is not a plain file",
        ),
        (
            "mkfifo $ATTACHE_ARTIFACTS",
            "$ATTACHE_ARTIFACTS must be a plain file of at most 262144 bytes, one path per line",
        ),
        (
            "head -c 300000 /dev/zero > $ATTACHE_ARTIFACTS",
            "$ATTACHE_ARTIFACTS must be a plain file of at most 262144 bytes, one path per line",
        ),
        (
            "printf '\\377' > $ATTACHE_ARTIFACTS",
            "the file $ATTACHE_ARTIFACTS cannot be read: stream did not contain valid UTF-8",
        ),
    ];
    for (script, message) in cases {
        assert_eq!(world.run(&task(script)).await, failed("task_failed", message), "{script}");
    }
    world.stop().await;
}
