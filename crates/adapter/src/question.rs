//! Questions of a running driver, open until they are answered from outside or the run ends.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use attache_protocol::{
    InputId, Json,
    wire::adapter::{
        AdapterInputAnswer, AdapterInputRequest, AdapterPermissionDecision, AdapterPermissionRequest, event,
    },
};
use tokio::{
    sync::{Notify, oneshot, watch},
    time::Instant,
};

use crate::execution::Execution;

/// Lets a driver ask questions. Cheap to clone. Dropping a pending question withdraws it.
#[derive(Debug, Clone)]
pub struct QuestionHandle(Arc<Execution>);

/// What the caller says without being asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsolicitedInput {
    /// The hub's id, for [`QuestionHandle::took`].
    pub id: Option<InputId>,
    pub parts: Json,
}

/// The questions of one run.
#[derive(Debug, Default)]
pub(crate) struct OpenQuestions {
    state: Mutex<QuestionsState>,
    /// The number of open questions. The run's deadline is paused while there are any.
    open: watch::Sender<usize>,
    /// Notified when unsolicited input arrives.
    unasked: Notify,
}

#[derive(Debug, Default)]
struct QuestionsState {
    permissions: BTreeMap<String, QuestionState<AdapterPermissionDecision>>,
    /// By question id. `order` lists the open ones, oldest first.
    inputs: BTreeMap<String, QuestionState<AdapterInputAnswer>>,
    order: VecDeque<String>,
    unasked: VecDeque<UnsolicitedInput>,
    /// Which of it the agent got. `None` until some with an id arrives.
    taken: Option<Vec<InputId>>,
}

#[derive(Debug)]
enum QuestionState<T> {
    Open(oneshot::Sender<T>),
    /// Answered or withdrawn. Further answers have no effect.
    Settled,
}

/// The result of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerReceipt {
    Accepted,
    /// No such question was asked.
    Unknown,
    /// The buffer for unsolicited input is full.
    Full,
}

/// Closes the question, however the wait ends.
struct QuestionGuard<'a> {
    execution: &'a Execution,
    seq: u64,
    what: QuestionKey,
}

enum QuestionKey {
    Permission(String),
    Input(String),
}

/// How many unsolicited inputs may wait unread.
const MAX_UNSOLICITED: usize = 64;

// === impl QuestionHandle ===

impl QuestionHandle {
    pub(crate) const fn of(execution: Arc<Execution>) -> Self {
        Self(execution)
    }

    /// Asks whether the agent may take a step and waits for the answer, for hours if need be. The id must be new to
    /// this run; reusing one is denied. `None` if the run was stopped in the meantime.
    pub async fn permission(&self, asked: &AdapterPermissionRequest) -> Option<AdapterPermissionDecision> {
        let (answer, given) = oneshot::channel();
        let waiting = {
            let mut state = self.0.questions().state();
            if state.permissions.contains_key(&asked.id) {
                let comment = Some(format!("the question id `{}` was already used", asked.id));
                return Some(AdapterPermissionDecision { approved: false, scope: None, comment });
            }
            // Registered before it becomes visible, because an answer may come at once.
            state.permissions.insert(asked.id.clone(), QuestionState::Open(answer));
            let seq = self.0.push_question(event::PERMISSION, Json::of(asked))?;
            QuestionGuard { execution: &self.0, seq, what: QuestionKey::Permission(asked.id.clone()) }
        };
        waiting.wait(given).await
    }

    /// Asks the caller for input and waits for it. `None` if the run was stopped in the meantime.
    pub async fn input(&self, prompt: impl Into<String>, parts: Option<Json>) -> Option<Json> {
        self.message(prompt, parts).await.map(|given| given.parts)
    }

    /// Like [`Self::input`], with the message that contained it.
    pub async fn message(&self, prompt: impl Into<String>, parts: Option<Json>) -> Option<AdapterInputAnswer> {
        let (answer, given) = oneshot::channel();
        let waiting = {
            let mut state = self.0.questions().state();
            let id = format!("input-{}", state.inputs.len() + 1);
            let asked = AdapterInputRequest { id: Some(id.clone()), prompt: prompt.into(), parts };
            state.inputs.insert(id.clone(), QuestionState::Open(answer));
            state.order.push_back(id.clone());
            let seq = self.0.push_question(event::INPUT_REQUIRED, Json::of(&asked))?;
            QuestionGuard { execution: &self.0, seq, what: QuestionKey::Input(id) }
        };
        waiting.wait(given).await
    }

    /// The caller's next unsolicited input. Say with [`Self::took`] when the agent has got it: otherwise, the caller is told
    /// at the end of the run that it wasn't delivered.
    pub async fn next_unsolicited(&self) -> UnsolicitedInput {
        let questions = self.0.questions();
        loop {
            let moved = questions.unasked.notified();
            if let Some(input) = questions.state().unasked.pop_front() {
                return input;
            }
            moved.await;
        }
    }

    /// The agent got this unsolicited input.
    pub fn took(&self, input: Option<InputId>) {
        self.0.questions().state().taken.get_or_insert_default().extend(input);
    }
}

// === impl QuestionGuard ===

impl QuestionGuard<'_> {
    async fn wait<T>(self, given: oneshot::Receiver<T>) -> Option<T> {
        self.execution.questions().open.send_modify(|open| *open += 1);
        tokio::select! {
            given = given => given.ok(),
            () = self.execution.stopped() => None,
        }
    }
}

impl Drop for QuestionGuard<'_> {
    fn drop(&mut self) {
        let questions = self.execution.questions();
        questions.open.send_modify(|open| *open = open.saturating_sub(1));
        {
            let mut state = questions.state();
            match &self.what {
                QuestionKey::Permission(id) => _ = state.permissions.insert(id.clone(), QuestionState::Settled),
                QuestionKey::Input(id) => {
                    state.inputs.insert(id.clone(), QuestionState::Settled);
                    state.order.retain(|open| open != id);
                }
            }
        }
        self.execution.close_question(self.seq);
    }
}

// === impl OpenQuestions ===

impl OpenQuestions {
    /// Answers a permission question. Only the first answer counts; repeating it is accepted and changes nothing.
    pub(crate) fn decide(&self, id: &str, given: AdapterPermissionDecision) -> AnswerReceipt {
        let mut state = self.state();
        match state.permissions.get_mut(id) {
            None => AnswerReceipt::Unknown,
            Some(question) => question.answer(given),
        }
    }

    /// Which unsolicited input the agent got. `None` if there was none with an id.
    pub(crate) fn taken(&self) -> Option<Vec<InputId>> {
        self.state().taken.clone()
    }

    /// Whether an input question is open.
    pub(crate) fn is_open(&self) -> bool {
        !self.state().order.is_empty()
    }

    /// Answers the named input question, or the oldest open one. Other input is kept for the driver as unsolicited.
    pub(crate) fn answer_input(&self, given: AdapterInputAnswer) -> AnswerReceipt {
        let mut state = self.state();
        let id = match &given.id {
            Some(id) if state.inputs.contains_key(id) => Some(id.clone()),
            Some(_) => return AnswerReceipt::Unknown,
            None => state.order.front().cloned(),
        };
        if let Some(id) = id {
            state.order.retain(|open| *open != id);
            if let Some(input) = given.input_id {
                state.taken.get_or_insert_default().push(input);
            }
            return state.inputs.get_mut(&id).map_or(AnswerReceipt::Unknown, |question| question.answer(given));
        }
        if state.unasked.len() >= MAX_UNSOLICITED {
            return AnswerReceipt::Full;
        }
        if given.input_id.is_some() {
            state.taken.get_or_insert_default();
        }
        state.unasked.push_back(UnsolicitedInput { id: given.input_id, parts: given.parts });
        self.unasked.notify_one();
        AnswerReceipt::Accepted
    }

    /// Returns once `left` has passed as working time. Time with an open question doesn't count.
    pub(crate) async fn working(&self, mut left: Duration) {
        let mut open = self.open.subscribe();
        loop {
            // The sender lives in `self`, so waiting can't fail.
            let _ = open.wait_for(|open| *open == 0).await;
            let since = Instant::now();
            tokio::select! {
                () = tokio::time::sleep(left) => return,
                _ = open.wait_for(|open| *open > 0) => left = left.saturating_sub(since.elapsed()),
            }
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, QuestionsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl QuestionState ===

impl<T> QuestionState<T> {
    fn answer(&mut self, given: T) -> AnswerReceipt {
        if let Self::Open(answer) = std::mem::replace(self, Self::Settled) {
            // The waiter may be gone already; then the answer isn't needed.
            let _ = answer.send(given);
        }
        AnswerReceipt::Accepted
    }
}
