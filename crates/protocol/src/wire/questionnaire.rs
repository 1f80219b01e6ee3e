//! Questions with options. They travel as a data part of an input request, beside a prompt that says the same in words, and
//! are answered by a data part or in words: whoever can only read and write text can answer them too.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    adapter::AdapterInputAnswer,
    part::{Part, PartContent},
};
use crate::Json;

/// What an agent asks at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Questionnaire {
    pub questions: Vec<OptionQuestion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OptionQuestion {
    pub question: String,
    /// A word or two, as a title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// None: the answer is free text.
    #[serde(default)]
    pub options: Vec<QuestionOption>,
    #[serde(default)]
    pub multi_select: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuestionOption {
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// The answer to one question: labels of options, or text, or both. Empty if it wasn't answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuestionAnswer {
    #[serde(default)]
    pub selected: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// In the order of the questions.
#[derive(Debug, Serialize, Deserialize)]
struct QuestionAnswers {
    answers: Vec<QuestionAnswer>,
}

// === impl Questionnaire ===

impl Questionnaire {
    /// The questions among the parts of an input request.
    pub fn from_parts(parts: &Json) -> Option<Self> {
        let asked: Self = data(parts)?;
        Some(asked).filter(|asked| !asked.questions.is_empty())
    }

    pub fn to_parts(&self) -> Json {
        Json::of(&[Part::new(PartContent::Data(Json::of(self)))])
    }

    /// In words, with a number for each option.
    pub fn prompt(&self) -> String {
        let blocks: Vec<String> = self.questions.iter().map(OptionQuestion::prompt).collect();
        let how = match self.questions.as_slice() {
            [only] if only.options.is_empty() => return blocks.concat(),
            [only] if only.multi_select => "Answer with numbers or names, separated by commas, or in your own words.",
            [_] => "Answer with a number or a name, or in your own words.",
            _ => "Answer each question on its own line, with numbers or names, or in your own words.",
        };
        format!("{}\n\n{how}", blocks.join("\n\n"))
    }

    /// The answers in the parts of an input, one per question. Text answers line by line; the last question takes the rest.
    pub fn answers(&self, given: &Json) -> Vec<QuestionAnswer> {
        if let Some(QuestionAnswers { mut answers }) = data(given) {
            answers.resize(self.questions.len(), QuestionAnswer::default());
            return answers;
        }
        let text = AdapterInputAnswer::text(given);
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let last = self.questions.len().saturating_sub(1);
        let mut answer = |(number, question): (usize, &OptionQuestion)| {
            let said =
                if number == last { lines.by_ref().collect::<Vec<_>>().join("\n") } else { lines.next()?.to_owned() };
            Some(question.read(&said)).filter(|_| !said.is_empty())
        };
        self.questions.iter().enumerate().map(|one| answer(one).unwrap_or_default()).collect()
    }
}

// === impl OptionQuestion ===

impl OptionQuestion {
    fn prompt(&self) -> String {
        let options = self.options.iter().enumerate().map(|(number, option)| {
            let about = option.description.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
            format!("\n  {}. {}{about}", number + 1, option.label)
        });
        std::iter::once(self.question.clone()).chain(options).collect()
    }

    /// Options by number or name; anything else is the answer itself.
    fn read(&self, said: &str) -> QuestionAnswer {
        let names: Vec<&str> = if self.multi_select { said.split(',').collect() } else { vec![said] };
        let selected: Option<Vec<String>> = names.into_iter().map(|name| self.option(name)).collect();
        match self.option(said).map(|label| vec![label]).or(selected) {
            Some(selected) => QuestionAnswer { selected, text: None },
            None => QuestionAnswer { selected: Vec::new(), text: Some(said.to_owned()) },
        }
    }

    fn option(&self, name: &str) -> Option<String> {
        let name = name.trim().trim_end_matches('.');
        let by_name = self.options.iter().find(|option| option.label.eq_ignore_ascii_case(name));
        let by_number = || self.options.get(name.parse::<usize>().ok()?.checked_sub(1)?);
        by_name.or_else(by_number).map(|option| option.label.clone())
    }
}

// === impl QuestionAnswer ===

impl QuestionAnswer {
    /// As one text.
    pub fn in_words(&self) -> String {
        let text = self.text.iter().filter(|text| !text.trim().is_empty());
        self.selected.iter().chain(text).cloned().collect::<Vec<_>>().join(", ")
    }

    /// The parts of an input with these answers, one per question.
    pub fn to_parts(answers: Vec<Self>) -> Json {
        Json::of(&[Part::new(PartContent::Data(Json::of(&QuestionAnswers { answers })))])
    }
}

/// The first data part that can be read as this.
fn data<T: serde::de::DeserializeOwned>(parts: &Json) -> Option<T> {
    parts.parse::<Vec<Part>>().ok()?.into_iter().find_map(|part| match part.content {
        PartContent::Data(data) => data.parse().ok(),
        PartContent::Text(_) | PartContent::Raw(_) | PartContent::Url(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn question(text: &str, labels: &[&str], multi_select: bool) -> OptionQuestion {
        let option = |label: &&str| QuestionOption { label: (*label).to_owned(), description: None };
        let options = labels.iter().map(option).collect();
        OptionQuestion { question: text.to_owned(), header: None, options, multi_select }
    }

    fn chosen(labels: &[&str]) -> QuestionAnswer {
        QuestionAnswer { selected: labels.iter().map(|label| (*label).to_owned()).collect(), text: None }
    }

    fn said(text: &str) -> QuestionAnswer {
        QuestionAnswer { selected: Vec::new(), text: Some(text.to_owned()) }
    }

    fn parts(text: &str) -> Json {
        Json::of(&[Part::text(text)])
    }

    #[test]
    fn a_text_chooses_by_number_or_name() {
        let one =
            Questionnaire { questions: vec![question("Which?", &["PostgreSQL", "SQLite, embedded", "3"], false)] };
        for (text, answer) in [
            ("1", chosen(&["PostgreSQL"])),
            (" postgresql ", chosen(&["PostgreSQL"])),
            ("2.", chosen(&["SQLite, embedded"])),
            ("sqlite, embedded", chosen(&["SQLite, embedded"])),
            ("3", chosen(&["3"])),
            ("0", said("0")),
            ("1, 2", said("1, 2")),
            ("neither\nof them", said("neither\nof them")),
            ("  ", QuestionAnswer::default()),
        ] {
            assert_eq!(one.answers(&parts(text)), [answer], "{text}");
        }
        let many = Questionnaire { questions: vec![question("Which?", &["a", "b", "c"], true)] };
        assert_eq!(many.answers(&parts("1, C")), [chosen(&["a", "c"])]);
        assert_eq!(many.answers(&parts("1, d")), [said("1, d")]);
    }

    #[test]
    fn each_line_answers_a_question() {
        let asked = Questionnaire {
            questions: vec![
                question("Which?", &["a", "b"], false),
                question("Why?", &[], false),
                question("And?", &["x"], false),
            ],
        };
        assert_eq!(asked.answers(&parts("2\n\nbecause\n1")), [chosen(&["b"]), said("because"), chosen(&["x"])]);
        assert_eq!(asked.answers(&parts("a")), [chosen(&["a"]), QuestionAnswer::default(), QuestionAnswer::default()]);
        assert_eq!(asked.answers(&parts("a\nb\nc\nd"))[2], said("c\nd"));
        let prompt = "Which?\n  1. a\n  2. b\n\nWhy?\n\nAnd?\n  1. x\n\nAnswer each question on its own line, with \
                      numbers or names, or in your own words.";
        assert_eq!(asked.prompt(), prompt);
    }

    #[test]
    fn foreign_parts_are_no_questions() {
        for parts in ["null", "[]", r#"[{"text":"x"}]"#, r#"[{"data":{"questions":[]}}]"#, r#"[{"data":[1]}]"#] {
            assert_eq!(Questionnaire::from_parts(&Json::from_text(parts).unwrap()), None, "{parts}");
        }
    }

    proptest! {
        #[test]
        fn what_was_asked_and_chosen_comes_back(
            asked in prop::collection::vec((".{1,20}", prop::collection::vec("[a-z]{1,8}", 0..4), any::<bool>()), 1..4),
            text in prop::option::of(".{0,20}"),
        ) {
            let questions = asked.iter().map(|(text, labels, many)| {
                question(text, &labels.iter().map(String::as_str).collect::<Vec<_>>(), *many)
            });
            let asked = Questionnaire { questions: questions.collect() };
            prop_assert_eq!(Questionnaire::from_parts(&asked.to_parts()), Some(asked.clone()));
            let answers: Vec<QuestionAnswer> = asked.questions.iter().map(|question| QuestionAnswer {
                selected: question.options.iter().map(|option| option.label.clone()).collect(),
                text: text.clone(),
            }).collect();
            prop_assert_eq!(asked.answers(&QuestionAnswer::to_parts(answers.clone())), answers);
            // Anything else is an answer, too.
            let given = Json::of(&[Part::text(text.unwrap_or_default())]);
            prop_assert_eq!(asked.answers(&given).len(), asked.questions.len());
        }
    }
}
