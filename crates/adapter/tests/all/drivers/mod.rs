//! Behaviour common to all host drivers. Behaviour of a single driver is tested in a file of its own.

mod ends;
mod reports;
mod steps;

use std::sync::Arc;

use attache_adapter::{
    Driver, HostSetup, Options,
    driver::{AcpDriver, ClaudeDriver, CodexDriver, ExecDriver},
};
use serde_json::{Value, json};

use crate::{
    exec,
    hosts::{fake, result, texts, unasked},
    world::AdapterWorld,
};

/// A driver, and how its host differs from the others.
struct DriverUnderTest {
    /// The fake host's dialect.
    manner: &'static str,
    drive: fn(HostSetup) -> Arc<dyn Driver>,
    asks: AsksWhom,
    speaks: TextGrouping,
    system: InstructionPlacement,
    /// What it reports besides the total number of tokens.
    tells: &'static [UsageReported],
    /// The tools that write a file and run a command.
    write: &'static str,
    run: &'static str,
    /// Its session id for the first conversation, if it keeps sessions.
    session: Option<&'static str>,
    /// Progress notes when the model is retried twice.
    retries: &'static [&'static str],
    /// The outcome after each script command.
    ends: &'static [(&'static str, &'static str)],
    /// The outcome after a program that prints nothing.
    deaf: &'static str,
    /// The outcome when the cost exceeds the budget.
    costly: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AsksWhom {
    People,
    Nobody,
}

/// How its output is grouped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextGrouping {
    /// Each text is a line, and all of them are the answer.
    Lines,
    /// The same, and the answer is repeated at the end.
    LinesAndWhole,
    /// Each text is a message, and the last one is the answer.
    Messages,
}

/// Where instructions go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InstructionPlacement {
    BeforeTheTask,
    Apart,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum UsageReported {
    InAndOut,
    Cost,
}

const CRASHED: (&str, &str) = ("CRASH", "host_crashed: Fake host was killed by signal 6");
const LEFT: (&str, &str) = ("EXIT:3", "host_crashed: Fake host exited with status 3 before it answered");
const DEAF: &str = "host_crashed: True exited before it answered";
const SPENT: &str = "$0.3000 spent, $0.2500 allowed";

const HOSTS: &[DriverUnderTest] = &[
    DriverUnderTest {
        manner: "acp",
        drive: |setup| Arc::new(AcpDriver::new(setup)),
        asks: AsksWhom::People,
        speaks: TextGrouping::Lines,
        system: InstructionPlacement::BeforeTheTask,
        tells: &[UsageReported::Cost],
        write: "edit",
        run: "execute",
        session: Some("fake-session-1"),
        // The protocol has no member for it.
        retries: &[],
        ends: &[
            CRASHED,
            LEFT,
            (
                "GARBAGE",
                "adapter_invalid_reply: Fake host sent unreadable output: {\"jsonrpc\":\"2.0\",. Its version may be \
                 too new or too old",
            ),
            ("REFUSE", "refused: Fake host refused the task"),
            (
                "FAIL:529",
                "model_unreachable: Fake host can't reach its model: Internal error (API Error: 529 FAKE-FAIL 529). Check \
                 the device's network and the host's login",
            ),
        ],
        deaf: DEAF,
        costly: Some(SPENT),
    },
    DriverUnderTest {
        manner: "claude",
        drive: |setup| Arc::new(ClaudeDriver::new(setup)),
        asks: AsksWhom::People,
        speaks: TextGrouping::Messages,
        system: InstructionPlacement::Apart,
        tells: &[UsageReported::InAndOut, UsageReported::Cost],
        write: "Write",
        run: "Bash",
        session: Some("6f1f2c9e-5d3c-4a55-9d0e-0c8e3f1f7a11"),
        retries: &["model retry 1/2: HTTP 529, server_error", "model retry 2/2: HTTP 529, server_error"],
        ends: &[
            CRASHED,
            LEFT,
            (
                "GARBAGE",
                "adapter_invalid_reply: Fake host sent unreadable output: `{\"type\":\"assistant\",\"message\":{` \
                 (EOF while parsing an object at line 1 column 31). Its version may be too new or too old",
            ),
            ("REFUSE", "refused: Fake host refused the task: API Error: the safeguards flagged this message"),
            (
                "FAIL:529",
                "model_unreachable: Fake host can't reach its model: API Error: 529 FAKE-FAIL 529. Check the device's network \
                 and the host's login",
            ),
            (
                "FAIL:401",
                "sign_in_required: Fake host isn't signed in on this device: run `claude` on this device and log in, or \
                 set ANTHROPIC_API_KEY for the adapter (API Error: 401 FAKE-FAIL 401.)",
            ),
            ("FAIL:400", "task_failed: Fake host failed: API Error: 400 FAKE-FAIL 400"),
        ],
        deaf: DEAF,
        costly: Some("Reached maximum budget ($0.25)"),
    },
    DriverUnderTest {
        manner: "codex",
        drive: |setup| Arc::new(CodexDriver::new(setup)),
        asks: AsksWhom::People,
        speaks: TextGrouping::Messages,
        system: InstructionPlacement::Apart,
        tells: &[UsageReported::InAndOut],
        write: "apply_patch",
        run: "shell",
        session: Some("fake-thread-1"),
        retries: &["model retry 1/2: Reconnecting... 1/2", "model retry 2/2: Reconnecting... 2/2"],
        ends: &[
            CRASHED,
            LEFT,
            (
                "GARBAGE",
                "adapter_invalid_reply: Fake host sent unreadable output: {\"method\":\"item/started\",. Its version \
                 may be too new or too old",
            ),
            ("REFUSE", "refused: Fake host refused the task: its model returned no answer"),
            (
                "FAIL:429",
                "usage_limit: Fake host reached its account's usage limit: exceeded retry limit, last status: 429 Too \
                 Many Requests. Wait, or upgrade the account's plan",
            ),
            (
                "FAIL:500",
                "model_unreachable: Fake host can't reach its model: FAKE-FAIL 500. Check the device's network and the host's \
                 login",
            ),
        ],
        deaf: DEAF,
        costly: None,
    },
    DriverUnderTest {
        manner: "jsonl",
        drive: |setup| Arc::new(ExecDriver::new(setup, exec::shape(exec::LINES))),
        asks: AsksWhom::Nobody,
        speaks: TextGrouping::LinesAndWhole,
        system: InstructionPlacement::BeforeTheTask,
        tells: &[UsageReported::InAndOut, UsageReported::Cost],
        write: "Write",
        run: "Bash",
        session: None,
        retries: &[],
        ends: &[
            CRASHED,
            ("EXIT:3", "task_failed: Fake host failed: it exited with status 3"),
            (
                "GARBAGE",
                "adapter_invalid_reply: Fake host sent unreadable output: {\"type\":. Its version may be too new or \
                 too old",
            ),
            ("REFUSE", "task_failed: Fake host failed: it exited with status 1: the model refused"),
            (
                "FAIL:529",
                "model_unreachable: Fake host can't reach its model: it exited with status 1: the model cannot be \
                 reached: 529. Check the device's network and the host's login",
            ),
        ],
        deaf: "task_failed: True failed: its output ended without an answer",
        costly: Some(SPENT),
    },
];

/// The hosts that ask people before they act.
fn asking() -> impl Iterator<Item = &'static DriverUnderTest> {
    HOSTS.iter().filter(|host| host.asks == AsksWhom::People)
}

// === impl DriverUnderTest ===

impl DriverUnderTest {
    async fn world(&self) -> AdapterWorld {
        self.world_of(fake(self.manner)).await
    }

    async fn world_of(&self, setup: HostSetup) -> AdapterWorld {
        AdapterWorld::of((self.drive)(setup), |_| {}).await
    }

    async fn world_with(&self, change: impl FnOnce(&mut Options)) -> AdapterWorld {
        AdapterWorld::of((self.drive)(fake(self.manner)), change).await
    }

    /// The stream for these consecutive texts.
    fn streamed(&self, texts: &[&str]) -> String {
        match self.speaks {
            TextGrouping::Lines | TextGrouping::LinesAndWhole => texts.iter().map(|text| format!("{text}\n")).collect(),
            TextGrouping::Messages => texts.join("\n\n"),
        }
    }

    /// The answer of a run with these texts.
    fn answer(&self, texts: &[&str]) -> String {
        match self.speaks {
            TextGrouping::Lines => self.streamed(texts),
            TextGrouping::LinesAndWhole => texts.join("\n"),
            TextGrouping::Messages => (*texts.last().unwrap()).to_owned(),
        }
    }

    fn usage(&self, input: u64, output: u64, cost: f64) -> Value {
        let mut usage = json!({"tokens": input + output, "cost_source": "unknown"});
        if self.tells.contains(&UsageReported::InAndOut) {
            usage["input_tokens"] = json!(input);
            usage["output_tokens"] = json!(output);
        }
        if self.tells.contains(&UsageReported::Cost) {
            usage["cost_usd"] = json!(cost);
            usage["cost_source"] = json!("reported");
        }
        usage
    }

    /// A successful run with these texts in one step.
    fn done(&self, texts: &[&str]) -> Value {
        let output = json!({"text": self.answer(texts), "artifact_refs": []});
        json!({"success": true, "output": output, "usage": self.usage(11, 7, 0.001)})
    }

    /// Runs a task without questions and expects exactly these texts.
    async fn says(&self, world: &AdapterWorld, task: &Value, said: &[&str]) {
        let events = unasked(world, task).await;
        assert_eq!(texts(&events, "chunk", "text").concat(), self.streamed(said), "{}", self.manner);
        assert_eq!(*result(&events), self.done(said), "{}", self.manner);
    }
}
