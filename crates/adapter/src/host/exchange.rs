//! What a host says and what people answer to its questions, in the order it arrives. Waiting for a person never blocks
//! the conversation.

use futures_util::future::{self, BoxFuture};

use super::{ApprovalAnswer, HostLines, KeyedAnswer, lines::HostLine};

/// The host's output, and its questions that are open for people.
pub(crate) struct HostExchange<K> {
    pub(crate) lines: HostLines,
    open: Vec<OpenQuestion<K>>,
}

/// A question with the host's own key for it. Dropping it withdraws it.
pub(crate) struct OpenQuestion<K> {
    pub(crate) key: K,
    /// A short description of the step.
    pub(crate) step: String,
    pub(crate) answer: BoxFuture<'static, ApprovalAnswer>,
}

pub(crate) enum HostInput<K> {
    Answer(KeyedAnswer<K>),
    /// `None` once the host has closed its output.
    Line(Option<HostLine>),
}

// === impl HostExchange ===

impl<K> HostExchange<K> {
    pub(crate) const fn new(lines: HostLines) -> Self {
        Self { lines, open: Vec::new() }
    }

    pub(crate) fn push(&mut self, question: OpenQuestion<K>) {
        self.open.push(question);
    }

    pub(crate) fn withdraw(&mut self, is_withdrawn: impl Fn(&K) -> bool) {
        self.open.retain(|question| !is_withdrawn(&question.key));
    }

    /// Withdraws all questions and returns their keys.
    pub(crate) fn withdraw_all(&mut self) -> Vec<K> {
        self.open.drain(..).map(|question| question.key).collect()
    }

    /// The next answer or line. Can be dropped at any time.
    pub(crate) async fn next(&mut self) -> HostInput<K> {
        let Self { lines, open } = self;
        let answered = async {
            if open.is_empty() {
                return future::pending().await;
            }
            let (answer, index, _) = future::select_all(open.iter_mut().map(|question| &mut question.answer)).await;
            (index, answer)
        };
        tokio::select! {
            biased;
            (index, answer) = answered => {
                let OpenQuestion { key, step, .. } = open.remove(index);
                HostInput::Answer(KeyedAnswer { key, step, answer })
            }
            line = lines.next() => HostInput::Line(line),
        }
    }
}
