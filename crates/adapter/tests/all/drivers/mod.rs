//! What every driver of a host does, whatever its host speaks; what only one of them does stands in a file of its own.

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

/// A driver, and how the host that it drives differs from the others.
struct DriverUnderTest {
    /// The fake host's manner of speaking.
    manner: &'static str,
    drive: fn(HostSetup) -> Arc<dyn Driver>,
    asks: AsksWhom,
    speaks: TextGrouping,
    system: InstructionPlacement,
    /// What it tells of its use beside the sum of the tokens.
    tells: &'static [UsageReported],
    /// The tools by which it writes a file and runs a command.
    write: &'static str,
    run: &'static str,
    /// Its name for what it keeps of a first conversation, where it keeps anything.
    session: Option<&'static str>,
    /// What people are told when its model is asked again, twice.
    retries: &'static [&'static str],
    /// What a run is told to have ended as after a word.
    ends: &'static [(&'static str, &'static str)],
    /// The same after a program that says nothing at all.
    deaf: &'static str,
    /// What is said of a cost that has become too high.
    costly: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AsksWhom {
    People,
    Nobody,
}

/// How what it says hangs together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextGrouping {
    /// Each text is a line, and the answer is all of them.
    Lines,
    /// The same, and the answer is told once more at the end.
    LinesAndWhole,
    /// Each text is a message, and the last is the answer.
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
const LEFT: (&str, &str) = ("EXIT:3", "host_crashed: Fake host ended with exit status 3 before it had answered");
const DEAF: &str = "host_crashed: True ended before it had answered";
const SPENT: &str = "$0.3000 was spent of the $0.2500 that was left for it";

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
        // The protocol has no word for it.
        retries: &[],
        ends: &[
            CRASHED,
            LEFT,
            (
                "GARBAGE",
                "adapter_invalid_reply: Fake host said something that cannot be read: {\"jsonrpc\":\"2.0\",. Its version may be \
                 too new or too old",
            ),
            ("REFUSE", "refused: Fake host will not do this"),
            (
                "FAIL:529",
                "model_unreachable: Fake host cannot reach its model: Internal error (API Error: 529 FAKE-FAIL 529). Check \
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
                "adapter_invalid_reply: Fake host said something that cannot be read: `{\"type\":\"assistant\",\"message\":{` \
                 (EOF while parsing an object at line 1 column 31). Its version may be too new or too old",
            ),
            ("REFUSE", "refused: Fake host will not do this: API Error: the safeguards flagged this message"),
            (
                "FAIL:529",
                "model_unreachable: Fake host cannot reach its model: API Error: 529 FAKE-FAIL 529. Check the device's network \
                 and the host's login",
            ),
            (
                "FAIL:401",
                "sign_in_required: Fake host is not signed in on this device: start `claude` here and log in, or set \
                 ANTHROPIC_API_KEY for the adapter (API Error: 401 FAKE-FAIL 401.)",
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
                "adapter_invalid_reply: Fake host said something that cannot be read: {\"method\":\"item/started\",. Its version \
                 may be too new or too old",
            ),
            ("REFUSE", "refused: Fake host will not do this: its model gave no answer"),
            (
                "FAIL:429",
                "usage_limit: Fake host has reached the usage limit of its account: exceeded retry limit, last status: 429 Too \
                 Many Requests. Wait, or change the plan of its account",
            ),
            (
                "FAIL:500",
                "model_unreachable: Fake host cannot reach its model: FAKE-FAIL 500. Check the device's network and the host's \
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
            ("EXIT:3", "task_failed: Fake host failed: it ended with exit status 3"),
            (
                "GARBAGE",
                "adapter_invalid_reply: Fake host said something that cannot be read: {\"type\":. Its version may be too new or \
                 too old",
            ),
            ("REFUSE", "task_failed: Fake host failed: it ended with exit status 1: the model refused"),
            (
                "FAIL:529",
                "model_unreachable: Fake host cannot reach its model: it ended with exit status 1: the model cannot be \
                 reached: 529. Check the device's network and the host's login",
            ),
        ],
        deaf: "task_failed: True failed: its output ended without an answer",
        costly: Some(SPENT),
    },
];

/// Those that ask people before they act.
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

    /// What is streamed of these texts, which are said one after the other.
    fn streamed(&self, texts: &[&str]) -> String {
        match self.speaks {
            TextGrouping::Lines | TextGrouping::LinesAndWhole => texts.iter().map(|text| format!("{text}\n")).collect(),
            TextGrouping::Messages => texts.join("\n\n"),
        }
    }

    /// The answer of a run that has said these texts.
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

    /// A run that has said these texts in one step and did well.
    fn done(&self, texts: &[&str]) -> Value {
        let output = json!({"text": self.answer(texts), "artifact_refs": []});
        json!({"success": true, "output": output, "usage": self.usage(11, 7, 0.001)})
    }

    /// Runs without questions, and says exactly these texts.
    async fn says(&self, world: &AdapterWorld, task: &Value, said: &[&str]) {
        let events = unasked(world, task).await;
        assert_eq!(texts(&events, "chunk", "text").concat(), self.streamed(said), "{}", self.manner);
        assert_eq!(*result(&events), self.done(said), "{}", self.manner);
    }
}
