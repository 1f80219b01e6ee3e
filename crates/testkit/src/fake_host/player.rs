//! Plays a script on whatever stage there is: the same words do the same in every manner of speaking.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    client::FakeHostInput,
    program::{FakeProgram, TurnSignal},
    tool_use::{FakeToolAction, ToolAnswer, ToolUse},
};
use crate::script::{self, ScriptCommand};

/// One manner of speaking. Texts are whole lines without their line break.
pub(super) trait FakeHostDialect {
    fn say(&mut self, text: &str);
    fn think(&mut self, text: &str);
    fn plan(&mut self, steps: &[&str]);
    /// A tool is about to be used.
    fn begin(&mut self, deed: &ToolUse);
    /// Asks for leave, if this host asks for that.
    fn ask(&mut self, deed: &ToolUse) -> PermissionReply;
    /// A tool has answered, or was not used.
    fn end(&mut self, deed: &ToolUse, answer: &ToolAnswer);
    /// The model is asked once more.
    fn retry(&mut self, retry: FakeRetry);
    /// The program's own count already has it.
    fn spend(&mut self, spent: FakeUsage) -> TurnFlow;
    /// Something unparseable.
    fn garbage(&self) -> &'static [u8];
    /// The system prompt, if there is one.
    fn system(&self) -> Option<String>;
    fn program(&mut self) -> &mut FakeProgram;
    /// SIGINT in the middle of a turn.
    fn interrupted(&mut self) -> TurnFlow;

    /// SIGINT between turns.
    fn interrupted_at_rest(&mut self) {
        self.interrupted();
    }

    /// What a message is for the turn at work.
    fn on_message(&mut self, _: Value) -> TurnSignal {
        TurnSignal::Nothing
    }

    /// Nobody is there any more who could want an answer.
    fn on_client_gone(&mut self) {}

    /// Where it works.
    fn folder(&self) -> PathBuf {
        std::env::current_dir().unwrap_or_default()
    }

    /// Waits for an answer; nothing if the turn was interrupted meanwhile.
    fn answer_to(&mut self, id: &Value) -> Option<Value> {
        loop {
            let FakeHostInput::Message(message) = self.program().client.next() else { return None };
            match self.on_message(message) {
                TurnSignal::Interrupt => return None,
                TurnSignal::Answer { to, answer } if to == *id => return Some(answer),
                TurnSignal::Answer { .. } | TurnSignal::Nothing => {}
            }
        }
    }

    /// Lets time pass, but listens.
    fn pause(&mut self, time: Duration) -> TurnFlow {
        let deadline = Instant::now() + time;
        loop {
            match self.program().client.next_until(deadline) {
                Some(FakeHostInput::Message(message)) => {
                    if matches!(self.on_message(message), TurnSignal::Interrupt) {
                        return TurnFlow::Interrupted;
                    }
                }
                Some(FakeHostInput::Interrupt) => return self.interrupted(),
                Some(FakeHostInput::Closed) => self.on_client_gone(),
                None => return TurnFlow::Go,
            }
        }
    }

    /// Calls something of the client's. Nothing if that is none.
    fn call(&mut self, _: &ToolUse) -> Option<ToolAnswer> {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PermissionReply {
    Given,
    Denied,
    /// Denied, and the turn is over.
    Interrupted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnFlow {
    Go,
    Interrupted,
    OverBudget,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct FakeUsage {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cost: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FakeRetry {
    pub(super) attempt: u32,
    pub(super) of: u32,
    pub(super) status: u16,
}

/// What a turn ends as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FakeTurnEnd {
    Done,
    Interrupted,
    OverBudget,
    Refused,
    /// The model answers with this status and nothing else.
    Unreachable(u16),
}

/// Plays one turn. Words that end the program do not come back from here.
pub(super) fn play(stage: &mut dyn FakeHostDialect, prompt: &str) -> FakeTurnEnd {
    let words = script::parse(prompt);
    let mut play = ScriptPlayer { dialect: stage, spent: price(&words), last: None, said: false };
    for word in &words {
        if let Err(end) = play.run_command(word) {
            return end;
        }
    }
    let last = play.last.take().map(|answer| format!("FAKE-OK after tool: {answer}"));
    match last {
        Some(line) => play.dialect.say(&line),
        None if !play.said => play.dialect.say("FAKE-OK"),
        None => {}
    }
    match play.spend() {
        Ok(()) => FakeTurnEnd::Done,
        Err(end) => end,
    }
}

struct ScriptPlayer<'a> {
    dialect: &'a mut dyn FakeHostDialect,
    spent: FakeUsage,
    /// What the last tool answered.
    last: Option<String>,
    said: bool,
}

impl ScriptPlayer<'_> {
    fn run_command(&mut self, word: &ScriptCommand) -> Result<(), FakeTurnEnd> {
        match word {
            ScriptCommand::Say(text) => self.say(text),
            ScriptCommand::Think(text) => self.dialect.think(text),
            ScriptCommand::Plan => self.dialect.plan(&["look", "do"]),
            ScriptCommand::Write { path, text } => {
                self.use_tool(FakeToolAction::Write { path: path.clone(), text: text.clone() })?;
            }
            ScriptCommand::Run(command) => self.use_tool(FakeToolAction::Run(command.clone()))?,
            ScriptCommand::Call { tool, input } => {
                self.use_tool(FakeToolAction::Call { tool: tool.clone(), input: input.clone() })?;
            }
            ScriptCommand::Ask(tool) => self.use_tool(FakeToolAction::Ask(tool.clone()))?,
            ScriptCommand::Denied => {
                let deed = self.tool_use(FakeToolAction::Ask("Forbidden".to_owned()));
                self.dialect.begin(&deed);
                self.finish(&deed, Err("denied by the rules of this host".to_owned()));
            }
            ScriptCommand::Sleep(time) => self.pause(*time)?,
            ScriptCommand::Retry { attempt, of } => {
                self.dialect.retry(FakeRetry { attempt: *attempt, of: *of, status: 529 });
            }
            ScriptCommand::Fail { status, times } => self.fail(*status, *times)?,
            ScriptCommand::Refuse => return Err(FakeTurnEnd::Refused),
            ScriptCommand::Loop => self.loop_forever()?,
            ScriptCommand::Env(name) => {
                let value = std::env::var_os(name);
                let value = value.map_or_else(|| "unset".to_owned(), |value| value.to_string_lossy().into_owned());
                self.say(&format!("{name}={value}"));
            }
            ScriptCommand::System => {
                let system = self.dialect.system().unwrap_or_else(|| "unset".to_owned());
                self.say(&format!("SYSTEM={system}"));
            }
            ScriptCommand::Args => {
                let line = format!("ARGS={:?}", self.dialect.program().arguments);
                self.say(&line);
            }
            ScriptCommand::Child => {
                let children = children();
                self.say(&format!("CHILDREN {children}"));
            }
            ScriptCommand::Crash => std::process::abort(),
            ScriptCommand::Exit(status) => std::process::exit(*status),
            ScriptCommand::Garbage => {
                let garbage = self.dialect.garbage();
                self.dialect.program().client.print_bytes(garbage);
                std::process::exit(0);
            }
            ScriptCommand::Hang => {
                self.say("HANGING");
                self.dialect.program().client.hang();
            }
            ScriptCommand::Tokens(_) | ScriptCommand::Cost(_) => {}
        }
        Ok(())
    }

    fn say(&mut self, text: &str) {
        self.said = true;
        self.dialect.say(text);
    }

    fn tool_use(&mut self, what: FakeToolAction) -> ToolUse {
        ToolUse { id: format!("deed_{}", self.dialect.program().serial()), what }
    }

    /// Uses a tool if it may.
    fn use_tool(&mut self, what: FakeToolAction) -> Result<(), FakeTurnEnd> {
        let deed = self.tool_use(what);
        self.dialect.begin(&deed);
        if let Some(answer) = self.dialect.call(&deed) {
            self.finish(&deed, answer);
            return Ok(());
        }
        match self.dialect.ask(&deed) {
            PermissionReply::Given => {
                let answer = deed.what.execute(&self.dialect.folder());
                self.finish(&deed, answer);
                Ok(())
            }
            PermissionReply::Denied => {
                self.finish(&deed, Err("denied".to_owned()));
                Ok(())
            }
            PermissionReply::Interrupted => {
                self.finish(&deed, Err("interrupted".to_owned()));
                Err(FakeTurnEnd::Interrupted)
            }
        }
    }

    fn finish(&mut self, deed: &ToolUse, answer: ToolAnswer) {
        self.dialect.end(deed, &answer);
        let (Ok(text) | Err(text)) = answer;
        self.last = Some(text.chars().take(200).collect());
    }

    /// So many failures and then an answer, or failures only.
    fn fail(&mut self, status: u16, times: Option<u32>) -> Result<(), FakeTurnEnd> {
        let of = 2.max(times.unwrap_or_default());
        for attempt in 1..=times.unwrap_or(of) {
            self.dialect.retry(FakeRetry { attempt, of, status });
            self.pause(Duration::from_millis(20))?;
        }
        if times.is_none() { Err(FakeTurnEnd::Unreachable(status)) } else { Ok(()) }
    }

    /// Uses a harmless tool until somebody stops it.
    fn loop_forever(&mut self) -> Result<(), FakeTurnEnd> {
        for nth in 0_u64.. {
            let deed = self.tool_use(FakeToolAction::Read(format!("no-such-file-{nth}.txt")));
            self.dialect.begin(&deed);
            let answer = deed.what.execute(&self.dialect.folder());
            self.dialect.end(&deed, &answer);
            self.spend()?;
            // Soon there is time enough to be stopped before the next step, also on a busy machine.
            self.pause(Duration::from_millis(if nth < 2 { 20 } else { 3000 }))?;
        }
        Ok(())
    }

    fn spend(&mut self) -> Result<(), FakeTurnEnd> {
        let total = &mut self.dialect.program().spent;
        total.input += self.spent.input;
        total.output += self.spent.output;
        total.cost += self.spent.cost;
        let flow = self.dialect.spend(self.spent);
        ended(flow)
    }

    fn pause(&mut self, time: Duration) -> Result<(), FakeTurnEnd> {
        let flow = self.dialect.pause(time);
        ended(flow)
    }
}

fn ended(flow: TurnFlow) -> Result<(), FakeTurnEnd> {
    match flow {
        TurnFlow::Go => Ok(()),
        TurnFlow::Interrupted => Err(FakeTurnEnd::Interrupted),
        TurnFlow::OverBudget => Err(FakeTurnEnd::OverBudget),
    }
}

/// What each step costs.
fn price(words: &[ScriptCommand]) -> FakeUsage {
    let mut spent = FakeUsage { input: 11, output: 7, cost: 0.001 };
    for word in words {
        match word {
            ScriptCommand::Tokens(tokens) => spent.output = *tokens,
            ScriptCommand::Cost(cost) => spent.cost = *cost,
            _ => {}
        }
    }
    spent
}

/// Starts two processes that outlive this one, unless somebody ends them, and answers with their ids.
fn children() -> String {
    // Only Linux finds a process that left its group.
    let leave = if cfg!(attache_portable) { "" } else { "setsid" };
    let script = format!(
        "sleep 300 </dev/null >/dev/null 2>&1 & echo $!; {leave} sleep 300 </dev/null >/dev/null 2>&1 & echo $!"
    );
    let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output();
    output.map_or_else(
        |error| format!("there is no shell: {error}"),
        |output| String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" "),
    )
}
