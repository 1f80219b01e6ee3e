//! The two forms of a call convert to each other without loss.

use attache_protocol::{
    Json,
    wire::call::{CallInput, CallRequest, CallTaskBody, CallTaskRequest},
};
use proptest::{
    collection::vec,
    option,
    prelude::{Strategy, any, proptest},
    prop_oneof,
};

/// JSON as people write it: spaces, numbers no float can hold, escapes, duplicate names.
fn json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        proptest::sample::select(vec![
            "null",
            "true",
            "42.0",
            "1e400",
            "-0",
            "0.10",
            "9007199254740993",
            r#""\ud800""#
        ])
        .prop_map(str::to_owned),
        any::<String>().prop_map(|text| Json::of(&text).get().to_owned()),
    ];
    let tree = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(" , "))),
            vec((any::<String>(), inner), 0..4).prop_map(|members| {
                let members: Vec<_> =
                    members.iter().map(|(name, value)| format!("{} :{value}", Json::of(name).get())).collect();
                format!("{{ {}}}", members.join(","))
            }),
        ]
    });
    tree.prop_map(|text| Json::from_text(text).unwrap())
}

fn task() -> impl Strategy<Value = CallTaskRequest> {
    let required = option::of(vec(any::<String>(), 0..3));
    (option::of(json()), any::<String>(), required, option::of(json()), option::of(json())).prop_map(
        |(header, description, capabilities_required, context, capabilities)| CallTaskRequest {
            header,
            task: CallTaskBody { description, capabilities_required },
            context,
            capabilities,
            ..CallTaskRequest::default()
        },
    )
}

/// A round trip through the text stored as the run's input.
fn kept(input: &CallInput) -> CallInput {
    Json::of(input).parse().unwrap()
}

proptest! {
    #[test]
    fn a_task_survives_being_a_run(task in task()) {
        let sent: CallTaskRequest = Json::of(&task).parse().unwrap();
        assert_eq!(sent, task);
        let input = kept(&CallInput::from(sent));
        assert_eq!(CallTaskRequest::from(input), task);
    }

    #[test]
    fn a_call_survives_the_other_form(text in any::<String>(), context in option::of(json())) {
        let call = CallRequest { task: text, context, ..CallRequest::default() };
        let task = CallTaskRequest::from(kept(&CallInput::from(call.clone())));
        let task: CallTaskRequest = Json::of(&task).parse().unwrap();
        assert_eq!(CallRequest::from(kept(&CallInput::from(task))), call);
    }
}
