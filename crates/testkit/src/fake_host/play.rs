//! Plays a script on whatever stage there is: the same words do the same in every manner of speaking.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    client::Incoming,
    deed::{Answer, Deed, What},
    program::{Heard, Program},
};
use crate::script::{self, Word};

/// One manner of speaking. Texts are whole lines without their line break.
pub(super) trait Stage {
    fn say(&mut self, text: &str);
    fn think(&mut self, text: &str);
    fn plan(&mut self, steps: &[&str]);
    /// A tool is about to be used.
    fn begin(&mut self, deed: &Deed);
    /// Asks for leave, if this host asks for that.
    fn ask(&mut self, deed: &Deed) -> Leave;
    /// A tool has answered, or was not used.
    fn end(&mut self, deed: &Deed, answer: &Answer);
    /// The model is asked once more.
    fn retry(&mut self, retry: Retry);
    /// The program's own count already has it.
    fn spend(&mut self, spent: Spent) -> Flow;
    /// Something nobody can read.
    fn garbage(&self) -> &'static [u8];
    /// The system prompt, if there is one.
    fn system(&self) -> Option<String>;
    fn program(&mut self) -> &mut Program;
    /// SIGINT in the middle of a turn.
    fn interrupted(&mut self) -> Flow;

    /// SIGINT between turns.
    fn interrupted_at_rest(&mut self) {
        self.interrupted();
    }

    /// What a message is for the turn at work.
    fn hear(&mut self, _: Value) -> Heard {
        Heard::Nothing
    }

    /// Nobody is there any more who could want an answer.
    fn deserted(&mut self) {}

    /// Where it works.
    fn folder(&self) -> PathBuf {
        std::env::current_dir().unwrap_or_default()
    }

    /// Waits for an answer; nothing if the turn was interrupted meanwhile.
    fn answer_to(&mut self, id: &Value) -> Option<Value> {
        loop {
            let Incoming::Message(message) = self.program().client.next() else { return None };
            match self.hear(message) {
                Heard::Interrupt => return None,
                Heard::Answer { to, answer } if to == *id => return Some(answer),
                Heard::Answer { .. } | Heard::Nothing => {}
            }
        }
    }

    /// Lets time pass, but listens.
    fn pause(&mut self, time: Duration) -> Flow {
        let deadline = Instant::now() + time;
        loop {
            match self.program().client.next_until(deadline) {
                Some(Incoming::Message(message)) => {
                    if matches!(self.hear(message), Heard::Interrupt) {
                        return Flow::Interrupted;
                    }
                }
                Some(Incoming::Interrupt) => return self.interrupted(),
                Some(Incoming::Closed) => self.deserted(),
                None => return Flow::Go,
            }
        }
    }

    /// Calls something of the client's. Nothing if that is none.
    fn call(&mut self, _: &Deed) -> Option<Answer> {
        None
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leave {
    Given,
    Denied,
    /// Denied, and the turn is over.
    Interrupted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Go,
    Interrupted,
    OverBudget,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Spent {
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) cost: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retry {
    pub(super) attempt: u32,
    pub(super) of: u32,
    pub(super) status: u16,
}

/// What a turn ends as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Done,
    Interrupted,
    OverBudget,
    Refused,
    /// The model answers with this status and nothing else.
    Unreachable(u16),
}

/// Plays one turn. Words that end the program do not come back from here.
pub(super) fn play(stage: &mut dyn Stage, prompt: &str) -> End {
    let words = script::parse(prompt);
    let mut play = Play { stage, spent: price(&words), last: None, said: false };
    for word in &words {
        if let Err(end) = play.word(word) {
            return end;
        }
    }
    let last = play.last.take().map(|answer| format!("FAKE-OK after tool: {answer}"));
    match last {
        Some(line) => play.stage.say(&line),
        None if !play.said => play.stage.say("FAKE-OK"),
        None => {}
    }
    match play.spend() {
        Ok(()) => End::Done,
        Err(end) => end,
    }
}

struct Play<'a> {
    stage: &'a mut dyn Stage,
    spent: Spent,
    /// What the last tool answered.
    last: Option<String>,
    said: bool,
}

impl Play<'_> {
    fn word(&mut self, word: &Word) -> Result<(), End> {
        match word {
            Word::Say(text) => self.say(text),
            Word::Think(text) => self.stage.think(text),
            Word::Plan => self.stage.plan(&["look", "do"]),
            Word::Write { path, text } => {
                self.act(What::Write { path: path.clone(), text: text.clone() })?;
            }
            Word::Run(command) => self.act(What::Run(command.clone()))?,
            Word::Call { tool, input } => self.act(What::Call { tool: tool.clone(), input: input.clone() })?,
            Word::Ask(tool) => self.act(What::Ask(tool.clone()))?,
            Word::Denied => {
                let deed = self.deed(What::Ask("Forbidden".to_owned()));
                self.stage.begin(&deed);
                self.finish(&deed, Err("denied by the rules of this host".to_owned()));
            }
            Word::Sleep(time) => self.pause(*time)?,
            Word::Retry { attempt, of } => self.stage.retry(Retry { attempt: *attempt, of: *of, status: 529 }),
            Word::Fail { status, times } => self.fail(*status, *times)?,
            Word::Refuse => return Err(End::Refused),
            Word::Loop => self.run_away()?,
            Word::Env(name) => {
                let value = std::env::var_os(name);
                let value = value.map_or_else(|| "unset".to_owned(), |value| value.to_string_lossy().into_owned());
                self.say(&format!("{name}={value}"));
            }
            Word::System => {
                let system = self.stage.system().unwrap_or_else(|| "unset".to_owned());
                self.say(&format!("SYSTEM={system}"));
            }
            Word::Args => {
                let line = format!("ARGS={:?}", self.stage.program().arguments);
                self.say(&line);
            }
            Word::Child => {
                let children = children();
                self.say(&format!("CHILDREN {children}"));
            }
            Word::Crash => std::process::abort(),
            Word::Exit(status) => std::process::exit(*status),
            Word::Garbage => {
                let garbage = self.stage.garbage();
                self.stage.program().client.print_bytes(garbage);
                std::process::exit(0);
            }
            Word::Hang => {
                self.say("HANGING");
                self.stage.program().client.hang();
            }
            Word::Tokens(_) | Word::Cost(_) => {}
        }
        Ok(())
    }

    fn say(&mut self, text: &str) {
        self.said = true;
        self.stage.say(text);
    }

    fn deed(&mut self, what: What) -> Deed {
        Deed { id: format!("deed_{}", self.stage.program().serial()), what }
    }

    /// Uses a tool if it may.
    fn act(&mut self, what: What) -> Result<(), End> {
        let deed = self.deed(what);
        self.stage.begin(&deed);
        if let Some(answer) = self.stage.call(&deed) {
            self.finish(&deed, answer);
            return Ok(());
        }
        match self.stage.ask(&deed) {
            Leave::Given => {
                let answer = deed.what.perform(&self.stage.folder());
                self.finish(&deed, answer);
                Ok(())
            }
            Leave::Denied => {
                self.finish(&deed, Err("denied".to_owned()));
                Ok(())
            }
            Leave::Interrupted => {
                self.finish(&deed, Err("interrupted".to_owned()));
                Err(End::Interrupted)
            }
        }
    }

    fn finish(&mut self, deed: &Deed, answer: Answer) {
        self.stage.end(deed, &answer);
        let (Ok(text) | Err(text)) = answer;
        self.last = Some(text.chars().take(200).collect());
    }

    /// So many failures and then an answer, or failures only.
    fn fail(&mut self, status: u16, times: Option<u32>) -> Result<(), End> {
        let of = 2.max(times.unwrap_or_default());
        for attempt in 1..=times.unwrap_or(of) {
            self.stage.retry(Retry { attempt, of, status });
            self.pause(Duration::from_millis(20))?;
        }
        if times.is_none() { Err(End::Unreachable(status)) } else { Ok(()) }
    }

    /// Uses a harmless tool until somebody stops it.
    fn run_away(&mut self) -> Result<(), End> {
        for nth in 0_u64.. {
            let deed = self.deed(What::Read(format!("no-such-file-{nth}.txt")));
            self.stage.begin(&deed);
            let answer = deed.what.perform(&self.stage.folder());
            self.stage.end(&deed, &answer);
            self.spend()?;
            // Soon there is time enough to be stopped before the next step, also on a busy machine.
            self.pause(Duration::from_millis(if nth < 2 { 20 } else { 3000 }))?;
        }
        Ok(())
    }

    fn spend(&mut self) -> Result<(), End> {
        let total = &mut self.stage.program().spent;
        total.input += self.spent.input;
        total.output += self.spent.output;
        total.cost += self.spent.cost;
        let flow = self.stage.spend(self.spent);
        ended(flow)
    }

    fn pause(&mut self, time: Duration) -> Result<(), End> {
        let flow = self.stage.pause(time);
        ended(flow)
    }
}

fn ended(flow: Flow) -> Result<(), End> {
    match flow {
        Flow::Go => Ok(()),
        Flow::Interrupted => Err(End::Interrupted),
        Flow::OverBudget => Err(End::OverBudget),
    }
}

/// What each step costs.
fn price(words: &[Word]) -> Spent {
    let mut spent = Spent { input: 11, output: 7, cost: 0.001 };
    for word in words {
        match word {
            Word::Tokens(tokens) => spent.output = *tokens,
            Word::Cost(cost) => spent.cost = *cost,
            _ => {}
        }
    }
    spent
}

/// Starts two processes that outlive this one, unless somebody ends them, and answers with their ids.
fn children() -> String {
    let script =
        "sleep 300 </dev/null >/dev/null 2>&1 & echo $!; setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $!";
    let output = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).output();
    output.map_or_else(
        |error| format!("there is no shell: {error}"),
        |output| String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" "),
    )
}
