//! The form of a question: what the client shows, and how the filled-in form becomes an answer. Everything in a question comes
//! from another agent.

use attache_protocol::{
    Json,
    wire::{
        part::Part,
        questionnaire::{OptionQuestion, QuestionAnswer, QuestionOption, Questionnaire},
    },
};
use rmcp::model::{ElicitRequestParams, ElicitationSchema};
use serde_json::{Map, Value, json};

use super::FormDialect;
use crate::{AgentQuestion, AnswerContent};

/// A question that a person can answer in a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuestionForm {
    text: String,
    dialect: FormDialect,
    fields: Vec<QuestionFields>,
    /// The answer goes to an agent that offered options.
    is_structured: bool,
}

/// The fields of one question.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QuestionFields {
    name: String,
    title: String,
    question: OptionQuestion,
    /// Whether there is a field for an answer in the person's own words.
    own_words: bool,
}

/// Beyond these, a form helps nobody: the question stays with the model.
const MAX_QUESTIONS: usize = 9;
const MAX_OPTIONS: usize = 50;
const MAX_LABEL: usize = 200;
const MAX_TEXT: usize = 4000;
/// Longer titles of a field are cut off.
const MAX_TITLE: usize = 80;
const WARNING: &str = "Don't enter passwords, keys or other secrets.";
/// What a question for a secret mentions. MCP forbids asking for secrets in a form: clients and models can read the answer.
const SECRETS: [&str; 22] = [
    "password",
    "passwort",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "api key",
    "api-key",
    "apikey",
    "access key",
    "private key",
    "credential",
    "one-time code",
    "verification code",
    "2fa",
    "seed phrase",
    "credit card",
    "密码",
    "密钥",
    "口令",
    "令牌",
    "验证码",
];

// === impl QuestionForm ===

impl QuestionForm {
    /// `None` if it can't be asked in a form of this dialect, or shouldn't.
    pub(crate) fn of(question: &AgentQuestion, dialect: FormDialect) -> Option<Self> {
        let (questions, is_structured) = match &question.questionnaire {
            Some(Questionnaire { questions }) => (questions.clone(), true),
            None => {
                let text = question.text.clone();
                (vec![OptionQuestion { question: text, header: None, options: Vec::new(), multi_select: false }], false)
            }
        };
        let count = questions.len();
        let text = shown(&questions.iter().map(|one| one.question.trim()).collect::<Vec<_>>().join("\n\n"));
        if !(1..=MAX_QUESTIONS).contains(&count) || text.trim().is_empty() || text.chars().count() > MAX_TEXT {
            return None;
        }
        let fields = questions.into_iter().enumerate();
        let fields = fields.map(|(number, question)| QuestionFields::of(question, number, count));
        Some(Self { text, dialect, fields: fields.collect::<Option<_>>()?, is_structured })
    }

    /// What the client is asked to show.
    pub(crate) fn request(&self, agent: Option<&str>) -> Option<ElicitRequestParams> {
        let asks = match agent {
            Some(agent) => format!("The agent {} asks", title(agent)),
            None => "An agent asks".to_owned(),
        };
        let message = format!("{asks}:\n\n{}\n\n{WARNING}", self.text);
        let (mut properties, mut required) = (Map::new(), Vec::new());
        let is_only = self.fields.len() == 1;
        for field in &self.fields {
            properties.insert(field.name.clone(), field.schema(self.dialect, is_only));
            if field.own_words && !field.is_list_in_words(self.dialect) {
                properties.insert(field.own_words_name(), own_words_schema(field, is_only));
            } else if is_only {
                required.push(field.name.clone());
            }
        }
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        let requested_schema: ElicitationSchema = serde_json::from_value(schema).ok()?;
        Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
    }

    /// The answer in a form that came back. `None` if nothing is answered, or something that wasn't offered.
    pub(crate) fn answer(&self, content: &Value) -> Option<AnswerContent> {
        let answers = self.fields.iter().map(|field| field.answer(content)).collect::<Option<Vec<_>>>()?;
        if answers.iter().all(|answer| answer.in_words().is_empty()) {
            return None;
        }
        Some(match self.is_structured {
            true => AnswerContent::Questionnaire(answers),
            false => AnswerContent::Text(answers.into_iter().find_map(|answer| answer.text)?),
        })
    }
}

// === impl QuestionFields ===

impl QuestionFields {
    /// `None` if the question asks for a secret, or can't be shown.
    fn of(question: OptionQuestion, number: usize, count: usize) -> Option<Self> {
        let labels: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
        let is_distinct = labels.iter().enumerate().all(|(at, label)| !labels[..at].contains(label));
        let is_shown = labels.iter().all(|label| shown(label) == **label && !label.trim().is_empty());
        let is_short = labels.len() <= MAX_OPTIONS && labels.iter().all(|label| label.chars().count() <= MAX_LABEL);
        if !is_distinct || !is_shown || !is_short {
            return None;
        }
        // Options are the agent's own words, so choosing one tells nothing secret.
        let is_for_secret = asks_for_secret(&question);
        if is_for_secret && labels.is_empty() {
            return None;
        }
        let (name, numbered) = match count {
            1 => ("answer".to_owned(), "Answer".to_owned()),
            _ => (format!("answer_{}", number + 1), format!("Question {}", number + 1)),
        };
        let header = question.header.as_deref().filter(|header| !header.trim().is_empty());
        let title = header.map_or(numbered, title);
        let own_words = !labels.is_empty() && !is_for_secret;
        Some(Self { name, title, question, own_words })
    }

    fn own_words_name(&self) -> String {
        format!("{}_in_own_words", self.name)
    }

    fn schema(&self, dialect: FormDialect, is_only: bool) -> Value {
        let Self { question, .. } = self;
        let titled = question.options.iter().any(|option| option.description.is_some());
        let mut schema = match (question.options.is_empty(), question.multi_select, dialect) {
            (true, _, _) | (false, true, FormDialect::SingleChoice) => json!({ "type": "string" }),
            (false, true, FormDialect::MultipleChoice) => match titled {
                true => json!({ "type": "array", "items": { "anyOf": consts(&question.options) } }),
                false => json!({ "type": "array", "items": { "type": "string", "enum": labels(&question.options) } }),
            },
            (false, false, FormDialect::MultipleChoice) if titled => {
                json!({ "type": "string", "oneOf": consts(&question.options) })
            }
            (false, false, _) => {
                let mut one = json!({ "type": "string", "enum": labels(&question.options) });
                if titled {
                    one["enumNames"] = question.options.iter().map(described).collect();
                }
                one
            }
        };
        schema["title"] = self.title.clone().into();
        if self.is_list_in_words(dialect) {
            let lines = question.options.iter().enumerate();
            let lines = lines.map(|(number, option)| format!("{}. {}", number + 1, described(option)));
            let about: Vec<String> = std::iter::once(shown(&question.question)).chain(lines).collect();
            schema["description"] =
                format!("{}\nAnswer with numbers or names, separated by commas.", about.join("\n")).into();
        } else if !is_only {
            schema["description"] = shown(&question.question).into();
        }
        schema
    }

    /// Several of the options can be chosen, but the client has no field for that.
    fn is_list_in_words(&self, dialect: FormDialect) -> bool {
        self.question.multi_select && !self.question.options.is_empty() && dialect == FormDialect::SingleChoice
    }

    /// `None` if it isn't one that the form offers.
    fn answer(&self, content: &Value) -> Option<QuestionAnswer> {
        let text = |name: &str| match content.get(name) {
            None | Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            Some(_) => None,
        };
        if self.question.options.is_empty() {
            return Some(QuestionAnswer { selected: Vec::new(), text: text(&self.name)? });
        }
        let own_words = if self.own_words { text(&self.own_words_name())? } else { None };
        let chosen: Vec<String> = match content.get(&self.name) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(label)) if label.is_empty() => Vec::new(),
            Some(Value::String(words)) if self.question.multi_select => return self.list_in_words(words, own_words),
            Some(Value::String(label)) => vec![label.clone()],
            Some(Value::Array(labels)) if self.question.multi_select => {
                labels.iter().map(|label| label.as_str().map(str::to_owned)).collect::<Option<_>>()?
            }
            Some(_) => return None,
        };
        // In the order in which they were offered, each once.
        let offered = self.question.options.iter().map(|option| &option.label);
        let selected: Vec<String> = offered.filter(|label| chosen.contains(label)).cloned().collect();
        let is_offered = chosen.iter().all(|label| selected.contains(label));
        is_offered.then_some(QuestionAnswer { selected, text: own_words })
    }

    /// Options by number or name.
    fn list_in_words(&self, words: &str, own_words: Option<String>) -> Option<QuestionAnswer> {
        let question = Questionnaire { questions: vec![self.question.clone()] };
        let mut answer = question.answers(&Json::of(&[Part::text(words)])).into_iter().next()?;
        if answer.text.is_some() && !self.own_words {
            return None;
        }
        answer.text = answer.text.or(own_words);
        Some(answer)
    }
}

fn own_words_schema(field: &QuestionFields, is_only: bool) -> Value {
    let title = if is_only { "In your own words".to_owned() } else { format!("{}, in your own words", field.title) };
    json!({ "type": "string", "title": title })
}

fn labels(options: &[QuestionOption]) -> Vec<&str> {
    options.iter().map(|option| option.label.as_str()).collect()
}

fn consts(options: &[QuestionOption]) -> Vec<Value> {
    options.iter().map(|option| json!({ "const": option.label, "title": described(option) })).collect()
}

fn described(option: &QuestionOption) -> String {
    match &option.description {
        Some(about) => format!("{}: {}", option.label, shown(about)).chars().take(2 * MAX_LABEL).collect(),
        None => option.label.clone(),
    }
}

fn asks_for_secret(question: &OptionQuestion) -> bool {
    let header = question.header.as_deref().unwrap_or_default();
    let text = format!("{header}\n{}", question.question).to_lowercase();
    SECRETS.iter().any(|secret| text.contains(secret))
}

/// Without characters that move or hide others.
fn shown(text: &str) -> String {
    let is_odd = |one: char| {
        (one.is_control() && one != '\n')
            || matches!(one, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
    };
    text.chars().map(|one| if is_odd(one) { ' ' } else { one }).collect()
}

/// One short line.
fn title(text: &str) -> String {
    let line = shown(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_TITLE) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests;
