use serde_json::json;

use super::*;
use crate::CallerKind;

fn asks(text: &str, options: &[(&str, Option<&str>)], multi_select: bool) -> OptionQuestion {
    let option = |(label, about): &(&str, Option<&str>)| QuestionOption {
        label: (*label).to_owned(),
        description: about.map(str::to_owned),
    };
    let options = options.iter().map(option).collect();
    OptionQuestion { question: text.to_owned(), header: None, options, multi_select }
}

fn question(questions: Vec<OptionQuestion>) -> AgentQuestion {
    AgentQuestion {
        id: "ask_1".to_owned(),
        text: "in words".to_owned(),
        questionnaire: Some(Questionnaire { questions }),
        caller: CallerKind::User,
    }
}

fn in_words(text: &str) -> AgentQuestion {
    AgentQuestion { text: text.to_owned(), questionnaire: None, ..question(Vec::new()) }
}

fn form(question: &AgentQuestion, dialect: FormDialect) -> (QuestionForm, Value) {
    let form = QuestionForm::of(question, dialect).unwrap();
    let params = form.request(Some("builder")).unwrap();
    (form, serde_json::to_value(params).unwrap())
}

fn answers(answers: &[(&[&str], Option<&str>)]) -> Option<AnswerContent> {
    let answer = |(selected, text): &(&[&str], Option<&str>)| QuestionAnswer {
        selected: selected.iter().map(|label| (*label).to_owned()).collect(),
        text: text.map(str::to_owned),
    };
    Some(AnswerContent::Questionnaire(answers.iter().map(answer).collect()))
}

#[test]
fn a_question_in_words_is_one_text_field() {
    for dialect in [FormDialect::SingleChoice, FormDialect::MultipleChoice] {
        let (form, params) = form(&in_words("Which language?"), dialect);
        let expected = json!({
            "mode": "form",
            "message": "The agent builder asks:\n\nWhich language?\n\nDon't enter passwords, keys or other secrets.",
            "requestedSchema": {
                "type": "object",
                "properties": { "answer": { "type": "string", "title": "Answer" } },
                "required": ["answer"],
            },
        });
        assert_eq!(params, expected);
        let french = Some(AnswerContent::Text("French".to_owned()));
        assert_eq!(form.answer(&json!({ "answer": " French\n" })), french);
        for nothing in [json!({}), json!({ "answer": " " }), json!({ "answer": 7 }), json!(null), json!([1])] {
            assert_eq!(form.answer(&nothing), None, "{nothing}");
        }
    }
}

#[test]
fn options_are_an_enum_and_own_words_are_another_field() {
    let question = question(vec![asks("Which?", &[("PostgreSQL", Some("a server")), ("SQLite", None)], false)]);
    let (_, old) = form(&question, FormDialect::SingleChoice);
    let expected = json!({
        "answer": {
            "type": "string", "title": "Answer",
            "enum": ["PostgreSQL", "SQLite"], "enumNames": ["PostgreSQL: a server", "SQLite"],
        },
        "answer_in_own_words": { "type": "string", "title": "In your own words" },
    });
    assert_eq!(old["requestedSchema"], json!({ "type": "object", "properties": expected }));
    let (form, new) = form(&question, FormDialect::MultipleChoice);
    let titled =
        json!([{ "const": "PostgreSQL", "title": "PostgreSQL: a server" }, { "const": "SQLite", "title": "SQLite" }]);
    let field = json!({ "type": "string", "title": "Answer", "oneOf": titled });
    assert_eq!(new["requestedSchema"]["properties"]["answer"], field);

    assert_eq!(form.answer(&json!({ "answer": "SQLite" })), answers(&[(&["SQLite"], None)]));
    let both = json!({ "answer": "SQLite", "answer_in_own_words": "for now" });
    assert_eq!(form.answer(&both), answers(&[(&["SQLite"], Some("for now"))]));
    assert_eq!(form.answer(&json!({ "answer_in_own_words": "neither" })), answers(&[(&[], Some("neither"))]));
    // Only what was offered is an answer.
    for wrong in [json!({ "answer": "Oracle" }), json!({ "answer": ["SQLite"] }), json!({ "answer": "" }), json!({})] {
        assert_eq!(form.answer(&wrong), None, "{wrong}");
    }
}

#[test]
fn several_choices_are_an_array_or_a_list_in_words() {
    let question = question(vec![asks("Which?", &[("a", None), ("b", None), ("c", Some("the last"))], true)]);
    let (new, params) = form(&question, FormDialect::MultipleChoice);
    let titled = json!([
        { "const": "a", "title": "a" },
        { "const": "b", "title": "b" },
        { "const": "c", "title": "c: the last" },
    ]);
    let field = json!({ "type": "array", "title": "Answer", "items": { "anyOf": titled } });
    assert_eq!(params["requestedSchema"]["properties"]["answer"], field);
    assert_eq!(new.answer(&json!({ "answer": ["c", "a", "a"] })), answers(&[(&["a", "c"], None)]));
    for wrong in [json!({ "answer": ["a", "d"] }), json!({ "answer": [1] }), json!({ "answer": [] })] {
        assert_eq!(new.answer(&wrong), None, "{wrong}");
    }

    let (old, params) = form(&question, FormDialect::SingleChoice);
    let about = "Which?\n1. a\n2. b\n3. c: the last\nAnswer with numbers or names, separated by commas.";
    let properties = json!({ "answer": { "type": "string", "title": "Answer", "description": about } });
    let schema = json!({ "type": "object", "properties": properties, "required": ["answer"] });
    assert_eq!(params["requestedSchema"], schema);
    assert_eq!(old.answer(&json!({ "answer": "3, a" })), answers(&[(&["c", "a"], None)]));
    assert_eq!(old.answer(&json!({ "answer": "none of them" })), answers(&[(&[], Some("none of them"))]));
}

#[test]
fn every_question_has_its_fields_and_its_answer() {
    let header = Some("Reason".to_owned());
    let question = question(vec![
        asks("Which?", &[("a", None), ("b", None)], false),
        OptionQuestion { header, ..asks("Why?", &[], false) },
    ]);
    let (form, params) = form(&question, FormDialect::MultipleChoice);
    assert_eq!(
        params["message"],
        "The agent builder asks:\n\nWhich?\n\nWhy?\n\nDon't enter passwords, keys or other secrets."
    );
    let properties = json!({
        "answer_1": { "type": "string", "title": "Question 1", "description": "Which?", "enum": ["a", "b"] },
        "answer_1_in_own_words": { "type": "string", "title": "Question 1, in your own words" },
        "answer_2": { "type": "string", "title": "Reason", "description": "Why?" },
    });
    assert_eq!(params["requestedSchema"], json!({ "type": "object", "properties": properties }));
    let expected = answers(&[(&["b"], None), (&[], Some("because"))]);
    assert_eq!(form.answer(&json!({ "answer_1": "b", "answer_2": "because" })), expected);
    let first = answers(&[(&["b"], None), (&[], None)]);
    assert_eq!(form.answer(&json!({ "answer_1": "b" })), first);
}

#[test]
fn nobody_is_asked_for_a_secret() {
    for text in ["What is the root password?", "Paste your API key", "Enter the verification code.", "请输入密码"]
    {
        assert_eq!(QuestionForm::of(&in_words(text), FormDialect::MultipleChoice), None, "{text}");
    }
    // An option tells nothing secret, but an answer in one's own words might.
    let question = question(vec![asks("Where is the token?", &[("in a file", None), ("nowhere", None)], false)]);
    let (form, params) = form(&question, FormDialect::MultipleChoice);
    let properties = params["requestedSchema"]["properties"].as_object().unwrap();
    assert_eq!(properties.keys().collect::<Vec<_>>(), ["answer"]);
    assert_eq!(form.answer(&json!({ "answer_in_own_words": "hunter2" })), None);
}

#[test]
fn what_cannot_be_shown_is_not_asked_in_a_form() {
    let many: Vec<_> = (0..51).map(|number| (number.to_string(), None)).collect();
    let many: Vec<(&str, Option<&str>)> = many.iter().map(|(label, about)| (label.as_str(), *about)).collect();
    for questions in [
        Vec::new(),
        vec![asks("Which?", &[], false); 10],
        vec![asks("Which?", &[("a", None), ("a", None)], false)],
        vec![asks("Which?", &[("a\u{202e}b", None)], false)],
        vec![asks("Which?", &many, false)],
        vec![asks(" ", &[("a", None)], false)],
        vec![asks(&"x".repeat(4001), &[], false)],
    ] {
        assert_eq!(QuestionForm::of(&question(questions.clone()), FormDialect::MultipleChoice), None, "{questions:?}");
    }
    // Text that would move or hide other text is inert.
    let (_, params) = form(&in_words("Delete\r\u{202e}it?\nReally?"), FormDialect::MultipleChoice);
    assert!(params["message"].as_str().unwrap().contains("\n\nDelete  it?\nReally?\n\n"), "{params}");
}
