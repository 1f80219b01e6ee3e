//! What a host says and what people answer to its questions, in the order it arrives. Waiting for a person never blocks
//! the conversation.

use futures_util::future::{self, BoxFuture};

use super::{ApprovalAnswer, HostLines, KeyedAnswer, lines::HostLine};
use crate::{QuestionHandle, UnsolicitedInput};

/// The host's output, and its questions that are open for people.
pub(crate) struct HostExchange<K> {
    pub(crate) lines: HostLines,
    /// With the length of the line that asked.
    open: Vec<(OpenHostQuestion<K>, usize)>,
    /// The length of the last line that was read.
    heard: usize,
    /// Where the caller speaks without being asked, if the host takes that.
    caller: Option<QuestionHandle>,
}

/// A question with the host's own key for it. Dropping it withdraws it.
pub(crate) struct OpenHostQuestion<K> {
    pub(crate) key: K,
    /// A short description of the step.
    pub(crate) step: String,
    pub(crate) answer: BoxFuture<'static, ApprovalAnswer>,
}

pub(crate) enum HostInput<K> {
    Answer(KeyedAnswer<K>),
    Unsolicited(UnsolicitedInput),
    /// `None` once the host has closed its output.
    Line(Option<HostLine>),
}

/// While this many questions are open, or so much text asks them, nothing more is read from the host.
const MAX_OPEN: usize = 64;
const MAX_OPEN_BYTES: usize = 32 << 20;

// === impl HostExchange ===

impl<K> HostExchange<K> {
    pub(crate) const fn new(lines: HostLines) -> Self {
        Self { lines, open: Vec::new(), heard: 0, caller: None }
    }

    /// Also receives unsolicited input of the caller.
    #[must_use]
    pub(crate) fn with_caller(mut self, caller: QuestionHandle) -> Self {
        self.caller = Some(caller);
        self
    }

    pub(crate) fn push(&mut self, question: OpenHostQuestion<K>) {
        self.open.push((question, self.heard));
    }

    pub(crate) fn withdraw(&mut self, is_withdrawn: impl Fn(&K) -> bool) {
        self.open.retain(|(question, _)| !is_withdrawn(&question.key));
    }

    /// Withdraws all questions and returns their keys.
    pub(crate) fn withdraw_all(&mut self) -> Vec<K> {
        self.open.drain(..).map(|(question, _)| question.key).collect()
    }

    /// The next answer, message of the caller, or line. Can be dropped at any time.
    pub(crate) async fn next(&mut self) -> HostInput<K> {
        let Self { lines, open, heard, caller } = self;
        let asks_too_much =
            open.len() >= MAX_OPEN || open.iter().map(|(_, bytes)| bytes).sum::<usize>() >= MAX_OPEN_BYTES;
        let answered = async {
            if open.is_empty() {
                return future::pending().await;
            }
            let (answer, index, _) =
                future::select_all(open.iter_mut().map(|(question, _)| &mut question.answer)).await;
            (index, answer)
        };
        let said = async {
            match caller {
                Some(caller) => caller.next_unsolicited().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            biased;
            (index, answer) = answered => {
                let (OpenHostQuestion { key, step, .. }, _) = open.remove(index);
                HostInput::Answer(KeyedAnswer { key, step, answer })
            }
            input = said => HostInput::Unsolicited(input),
            line = lines.next(), if !asks_too_much => {
                *heard = line.as_ref().map_or(0, HostLine::bytes);
                HostInput::Line(line)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Stdio, time::Duration};

    use tokio::{process::Command, sync::oneshot, time::timeout};

    use super::*;

    #[tokio::test]
    async fn a_host_that_asks_too_much_waits() {
        let mut program = Command::new("sh");
        let mut child = program.args(["-c", "seq 100"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut exchange = HostExchange::new(HostLines::of(child.stdout.take()));
        let mut answers = Vec::new();
        for key in 0..MAX_OPEN {
            assert!(matches!(exchange.next().await, HostInput::Line(Some(_))));
            let (answer, given) = oneshot::channel();
            answers.push(answer);
            let answer = Box::pin(async { given.await.unwrap_or(ApprovalAnswer::Stopped) });
            exchange.push(OpenHostQuestion { key, step: String::new(), answer });
        }
        assert!(timeout(Duration::from_millis(300), exchange.next()).await.is_err());
        answers.pop().unwrap().send(ApprovalAnswer::Allowed).unwrap();
        let HostInput::Answer(answered) = exchange.next().await else { panic!("the answer comes first") };
        assert_eq!(answered.key, MAX_OPEN - 1);
        assert!(matches!(exchange.next().await, HostInput::Line(Some(_))));
        child.wait().await.unwrap();
    }
}
